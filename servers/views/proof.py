"""Proof of the audit log: checkpoints, witnesses, the public key, the standalone verifier, alarms and their
acknowledgment."""

from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.proof import alarms, board, verify_export
from servers.audit.proof.checkpoints import KeyReplaced
from servers.audit.proof.key import KeyMissing
from servers.audit.record import Actor
from servers.jobs import board as jobs
from servers.models import AuditAlarm

REASON_CHARS = 1_000


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_safe
def verifier(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view_auditevent")
    return _download(Path(verify_export.__file__).read_text(), "verify_export.py", "text/x-python")


@require_safe
def public_key(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view_auditevent")
    keys = board.proof().keys
    return _download("".join(f"{key}\n" for key in keys), "checkpoint_key.pub", "text/plain")


@require_POST
def acknowledge(request: HttpRequest, uid: UUID) -> HttpResponse:
    access.require(request.user, "administer")
    alarm = get_object_or_404(AuditAlarm, uid=uid)
    reason = request.POST.get("reason", "").strip()
    if not reason or len(reason) > REASON_CHARS:
        words = "Explain why this can be accepted." if not reason else f"Use at most {REASON_CHARS:,} characters."
        return _page(request, refused={"uid": alarm.uid, "words": words, "reason": reason}, status=422)
    try:
        first = alarms.acknowledge(alarm, Actor.of(request), reason)
    except (KeyMissing, KeyReplaced) as problem:
        return _page(request, refused={"uid": alarm.uid, "words": str(problem), "reason": reason}, status=422)
    if first:
        messages.success(request, "Acknowledged. The reason is in the audit log.")
    else:
        messages.info(request, "Another administrator acknowledged this alarm first.")
    return redirect("audit:proof")


def _page(request: HttpRequest, refused: dict[str, object] | None = None, status: int = 200) -> HttpResponse:
    access.require(request.user, "view_auditevent")
    context = {
        "nav": "explorer",
        "proof": board.proof(),
        "alarms": alarms.standing(),
        "alarms_below": True,  # instead of the banner above
        "acknowledged": AuditAlarm.objects.exclude(acknowledged_at=None)[:10],
        "refused": refused,
        "may_acknowledge": access.may(request.user, "administer"),
        "verification": jobs.verification() if access.may(request.user, "verify_chain") else None,
        "seconds": settings.CHECKPOINT_SECONDS,
        "events": f"{settings.CHECKPOINT_EVENTS:,}",
    }
    return render(request, "proof/page.html", context, status=status)


def _download(text: str, name: str, kind: str) -> HttpResponse:
    answer = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer

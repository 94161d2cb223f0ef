"""One audit event with its whole exchange. The list of events is part of the explorer."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit import payloads, query
from servers.audit.record import Actor, ServerRef
from servers.audit.verify import verify
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, JobKind, PayloadKind, StatementKind
from servers.models import AuditEvent, Checkpoint, Payload
from servers.numbers import whole_number
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from servers.requests import return_to
from servers.views.jobs import request_job

_TREE_BYTES = 512 * 1024


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """The events are rows of the explorer; URLs of the former list redirect there."""
    access.require(request.user, "view_auditevent")
    selected = whole_number(request.GET.get("sel", ""))
    if selected is not None:
        return redirect("audit:detail", selected)
    return redirect(f"{reverse('explorer:page')}?{urlencode({'q': _query(request.GET)})}")


#: filter of the former list -> field of the explorer
_OUTCOMES = {
    "failed": "error",
    "tool_error": "error",
    "rpc_error": "error",
    "outcome_unknown": "unknown",
}


def _query(filters: Mapping[str, str]) -> str:
    """The filters in the explorer's query language. Unusable ones are omitted."""
    kind, outcome = filters.get("kind", ""), filters.get("outcome", "")
    kind = query.RENAMED.get(kind, kind)
    calls = kind == "calls" or kind.startswith("call:")
    words = ["in:calls" if calls else "in:events"]
    if not calls and (kind in query.GROUPS or kind in AuditAction.values):
        words.append(f"kind:{kind}")
    if outcome in AuditOutcome.values:
        pending = "running" if calls else "pending"
        words.append(f"outcome:{pending if outcome == AuditOutcome.PENDING else _OUTCOMES.get(outcome, outcome)}")
    words += [f"{name}:{_quoted(value)}" for name in ("server", "user") if (value := filters.get(name, "").strip())]
    words += [f"{name}:{at}" for name in ("since", "until") if (at := _moment(filters.get(name, "").strip()))]
    text = filters.get("text", "").strip()
    return " ".join([*words, *([_quoted(text)] if text else [])])


def _moment(text: str) -> str:
    """The time in ISO format; without a zone it is UTC. Empty if it is not a time."""
    try:
        moment = parse_datetime(text)
    except ValueError:  # well-formed but impossible, such as 30 February
        return ""
    if moment is None:
        return ""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@require_safe
def detail(request: HttpRequest, seq: int) -> HttpResponse:
    events = access.audit_events(request.user)
    try:
        event = events.filter(seq=seq).first()
        selected = None if event is None else shown_event(request, event)
    except Exception:  # whatever the driver, a field or a view raises for a value of the wrong type
        if (verdict := verify(seq, seq)).ok:
            raise
        return _without_event(request, events, seq, "cannot be read", verdict.reason)
    if selected is not None:
        return render(request, "audit/detail.html", {"nav": "explorer", "selected": selected})
    if not 0 < seq <= query.head_seq():
        raise Http404("This event does not exist.")
    cut = Checkpoint.objects.filter(kind=StatementKind.CUT, seq__gte=seq).first()
    if cut is not None:
        removed = f"Retention removed all events up to #{cut.seq}, as recorded in a signed statement."
        return _without_event(request, events, seq, "was removed by retention", removed, status=404)
    return _without_event(
        request, events, seq, "is missing", "It was recorded, but is not in the log anymore.", status=404
    )


def _without_event(
    request: HttpRequest, events: QuerySet[AuditEvent], seq: int, what: str, reason: str, status: int = 200
) -> HttpResponse:
    """The page that explains why an event cannot be shown."""
    numbers = events.order_by("seq").values_list("seq", flat=True)
    context = {
        "nav": "explorer",
        "title": f"Event {seq} {what}",
        "reason": reason,
        "before": numbers.filter(seq__lt=seq).last(),
        "after": numbers.filter(seq__gt=seq).first(),
    }
    return render(request, "audit/without_event.html", context, status=status)


@require_POST
def verify_all(request: HttpRequest) -> HttpResponse:
    access.require(request.user, "view_auditevent")
    request_job(request, JobKind.VERIFICATION)
    if request.POST.get("back") == "proof":
        return redirect("audit:proof")
    return redirect(return_to(request, reverse("explorer:page")))


# --- one event ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ShownPayload:
    """`value` is parsed JSON for the tree, otherwise `text` is shown unchanged. `missing` says why there is nothing."""

    title: str
    digest: str
    value: Any = None
    text: str = ""
    size: int = 0
    missing: str = ""
    intact: bool = True
    erasable: bool = False


def shown_event(request: HttpRequest, event: AuditEvent) -> dict[str, Any]:
    """The context for audit/_event.html. The person must be allowed to see `event`."""
    exchange = query.exchange(event)
    body = query.readable_body(event)
    details = body["details"]
    return {
        "event": event,
        "row": query.event_row(event),
        "prev": body.get("prev", ""),
        "changes": _changes(details),
        "details": details,
        "exchange": [query.event_row(other) | {"details": query.readable_body(other)["details"]} for other in exchange],
        "payloads": _payloads(request, exchange),
        "link": verify(event.seq, event.seq),
    }


def _changes(details: dict[str, Any]) -> list[dict[str, Any]]:
    """The values before and after, removed from the details and shown separately on the page."""
    changes = details.get("changes")
    if not isinstance(changes, dict) or not all(isinstance(change, dict) for change in changes.values()):
        return []
    del details["changes"]
    return [
        {"name": name.replace("_", " "), "before": _words(change.get("before")), "after": _words(change.get("after"))}
        for name, change in changes.items()
    ]


def _words(value: Any) -> str:
    if value is None or value == "":
        return "—"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _payloads(request: HttpRequest, exchange: list[AuditEvent]) -> list[ShownPayload]:
    """Arguments and results that the events refer to by digest, each once."""
    named: dict[str, str] = {}
    for event in exchange:
        for name, digest in query.readable_body(event)["digests"].items():
            named.setdefault(digest, name)
    if not named:
        return []
    if not access.may_read_payloads(request.user):
        missing = "You don't have permission to read arguments and results. Ask an administrator for access."
        left = set(Payload.objects.filter(digest__in=named, erased_at=None).values_list("digest", flat=True))
        return [
            ShownPayload(_title(name), digest, missing=missing, erasable=digest in left)
            for digest, name in named.items()
        ]
    stored = {row.digest: row for row in Payload.objects.filter(digest__in=named)}
    _record_reading(request, exchange, stored.values())
    return [_payload(_title(name), digest, stored.get(digest)) for digest, name in named.items()]


def _record_reading(request: HttpRequest, exchange: list[AuditEvent], found: Iterable[Payload]) -> None:
    """Record the reading, except for the person who made the call."""
    actor, event = Actor.of(request), exchange[0]
    if any(one.action == AuditAction.CALL_REQUEST and one.actor_id == actor.id for one in exchange):
        return
    server = ServerRef(event.server_uid, event.server_name) if event.server_uid else None
    payload_readings.record(actor, found, PayloadContext(server, event.identity_name, event.subject, event.call_uid))


def _title(name: str) -> str:
    return PayloadKind(name).label if name in PayloadKind.values else name.replace("_", " ").capitalize()


def _payload(title: str, digest: str, row: Payload | None) -> ShownPayload:
    if row is None:
        return ShownPayload(title, digest, missing="No longer stored.", intact=False)
    try:
        text = payloads.read(row)
    except SealError as problem:
        return ShownPayload(title, digest, size=row.size, missing=str(problem), erasable=True)
    except payloads.DAMAGED:
        words = "Modified: what is stored can no longer be read."
        return ShownPayload(title, digest, size=row.size, missing=words, intact=False, erasable=True)
    if text is None:
        return ShownPayload(title, digest, size=row.size, missing=f"Erased {row.erased_at:%Y-%m-%d %H:%M} UTC.")
    shown = ShownPayload(title, digest, size=row.size, intact=payloads.intact(row), erasable=True)
    if row.size > _TREE_BYTES:
        return replace(shown, text=text[:_TREE_BYTES])
    try:
        return replace(shown, value=json.loads(text))
    except ValueError:
        return replace(shown, text=text)

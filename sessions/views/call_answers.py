"""Responses about a call that several views share: its page and card, the confirmation before it is run again, and what
it sent and returned."""

import json
from typing import Any

from django.http import Http404, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.crypto import SealError
from servers.models import Payload
from servers.requests import WebRequest
from sessions.calls import visibility
from sessions.calls.payload_readings import record_reading
from sessions.calls.placing import AuditUnavailable, Rejected
from sessions.calls.repeating import ConfirmationReasons
from sessions.enums import ArgumentProblemKind
from sessions.models import Call


def see_other(call: Call) -> HttpResponseRedirect:
    response = redirect("calls:detail", call.uid)
    response.status_code = 303
    return response


def card_answer(request: WebRequest, call: Call) -> dict[str, Any]:
    """The same answer that the socket gives for an accepted call, for the same script."""
    html = render_to_string("calls/_card.html", {"call": call, "may_read": True}, request)
    url = reverse("calls:detail", args=[call.uid])
    return {"call": str(call.uid), "number": call.pk, "version": call.version, "html": html, "url": url}


def not_placed(problem: Rejected | AuditUnavailable) -> JsonResponse:
    """For a script. `unconfirmed`: the call may have been placed anyway."""
    unconfirmed = isinstance(problem, AuditUnavailable) and not problem.unchanged
    return JsonResponse({"message": str(problem), "unconfirmed": unconfirmed}, status=422)


def asked_for(reasons: ConfirmationReasons, problem: Rejected | AuditUnavailable | None) -> dict[str, Any]:
    """The context of calls/_confirmation_reasons.html besides `target` and `words`."""
    missing = problem.confirm if isinstance(problem, Rejected) else ""
    return {
        "problem": str(problem) if problem else "",
        "errors": problem.errors if isinstance(problem, Rejected) else {},
        "ask_name": reasons.name or missing == "name",
        "ask_unchecked": missing == "unchecked" or reasons.doubt == ArgumentProblemKind.UNCHECKED,
        "ask_anyway": missing == "anyway" or reasons.doubt == ArgumentProblemKind.INVALID,
        "reasons": reasons,
    }


def readable_arguments(call: Call) -> str | None:
    """The arguments, or why they cannot be opened; None once they were erased."""
    try:
        return payloads.read(call.arguments)
    except SealError as problem:
        return str(problem)


def arguments_file(call: Call) -> HttpResponse:
    text = payloads.read(call.arguments)
    if text is None:
        raise Http404("The arguments of this call were erased.")
    return as_file(text.encode("utf-8", "surrogatepass"), "application/json", f"call-{call.pk}-arguments.json")


def result_object(request: WebRequest, call: Call) -> dict[str, Any]:
    try:
        value = json.loads(result_text(request, call))
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}


def result_text(request: WebRequest, call: Call) -> str:
    text = payloads.read(result_payload(request, call))
    if text is None:
        raise Http404("This call has no result, or it was erased.")
    return text


def result_payload(request: WebRequest, call: Call) -> Payload:
    if not visibility.may_read(request.user, call):
        raise access.Denied("view_payload", call.server)
    payload = call.result or call.late_result
    record_reading(Actor.of(request), call, payload)
    if payload is None:
        raise Http404("This call has no result, or it was erased.")
    return payload


def as_file(data: bytes, kind: str, name: str) -> HttpResponse:
    """A download. A browser must never treat content from a server as one of our pages."""
    response = HttpResponse(data, content_type=kind)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response

"""Calls that a request may see, and their arguments as the initial content of a form."""

from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse

from servers import access
from servers.audit.record import Actor, ServerRef
from servers.privacy import payload_readings
from servers.privacy.payload_readings import PayloadContext
from servers.requests import WebRequest
from sessions.calls import visibility
from sessions.calls.payload_readings import record_reading
from sessions.calls.prefilling import Prefill, prefill_of
from sessions.models import Call
from sessions.saved_calls.reading import saved_call


def visible_call(request: WebRequest, uid: UUID) -> Call:
    found = visible_calls(request.user).filter(uid=uid).first()
    if found is None:
        raise Http404("This call does not exist, or you don't have access to it.")
    return found


def visible_calls(user: access.User) -> QuerySet[Call]:
    rows = visibility.visible(user)
    return rows.select_related("server", "session__owner", "arguments", "result", "late_result", "agent", "approval")


def scripted(request: WebRequest) -> bool:
    """Whether the request comes from a page's script, which accepts only JSON."""
    return request.accepts("application/json") and not request.accepts("text/html")


def prefill(request: WebRequest, method: str, target: str) -> Prefill | None:
    """The form content that `?call=` or `?saved=` requests; None without them. A call of another tool is refused: its
    arguments would not fit."""
    if "saved" in request.GET:
        return _saved(request, method, target)
    word = request.GET.get("call", "")
    if not word:
        return None
    try:
        call = visible_call(request, UUID(word))
    except (ValueError, Http404):
        return Prefill("that call", problem="It does not exist, or you don't have access to it.")
    whose, url = f"call #{call.pk}", reverse("calls:detail", args=[call.uid])
    if (call.method, call.target) != (method, target):
        return Prefill(whose, url, problem="It is a call of something else.")
    if not visibility.may_read(request.user, call):
        return Prefill(whose, url, problem="You don't have permission to read its arguments.")
    record_reading(Actor.of(request), call, call.arguments)
    return prefill_of(call.arguments, whose, url, as_task=call.as_task)


def _saved(request: WebRequest, method: str, target: str) -> Prefill:
    try:
        saved = saved_call(request.user, UUID(request.GET["saved"]))
    except (ValueError, Http404):
        return Prefill("that saved call", problem="It does not exist, or you don't have access to it.")
    whose, url = f"“{saved.name}”", reverse("servers:saved", args=[saved.server.slug])
    if (saved.method, saved.target) != (method, target):
        return Prefill(whose, url, problem="It is a call of something else.")
    if saved.owner_id != request.user.pk:
        context = PayloadContext(ServerRef.of(saved.server), subject=saved.target)
        payload_readings.record(Actor.of(request), [saved.arguments], context)
    return prefill_of(saved.arguments, whose, url, as_task=saved.as_task)

"""Two calls side by side: choosing the other call, and the differences in arguments and results."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.crypto import SealError
from servers.models import Payload
from servers.numbers import whole_number
from servers.requests import WebRequest
from sessions.calls import visibility
from sessions.calls.compared import Parts, argument_parts, result_parts
from sessions.calls.operations import texts_of
from sessions.calls.payload_readings import record_reading
from sessions.models import Call
from sessions.models.call import Head
from sessions.subscriptions.comparison import VersionDifference, compare
from sessions.views.visible_calls import visible_call

OFFERED = 20


@dataclass(frozen=True)
class Side:
    """One call, with the texts of its parts, or why they cannot be shown."""

    call: Call
    arguments: str
    result: str
    no_arguments: str = ""
    no_result: str = ""


@require_safe
def choose(request: WebRequest, uid: UUID) -> HttpResponse:
    """Calls of the same target on all servers; the previous one is preselected. `?with=` or `?number=` chooses one."""
    call = visible_call(request, uid)
    every = visibility.visible(request.user).exclude(pk=call.pk)
    entered = request.GET.get("number", "").strip()
    if "number" in request.GET:
        number = whole_number(entered.removeprefix("#"))
        if number and (found := every.filter(pk=number).first()) is not None:
            return redirect("calls:compare", call.uid, found.uid)
        messages.error(request, _no_such_call(call, number))
    elif word := request.GET.get("with", ""):
        return redirect("calls:compare", call.uid, _uid(word, call))
    rows = every.alias(head=Head("target")).filter(head=call.target[:120], target=call.target, method=call.method)
    before, after = rows.filter(pk__lt=call.pk).order_by("-pk"), rows.filter(pk__gt=call.pk).order_by("-pk")
    context = {
        "nav": "servers",
        "call": call,
        "words": texts_of(call.method),
        "others": [*before[:OFFERED], *after[:OFFERED]],
        "entered": entered,
    }
    return render(request, "calls/choose.html", context)


def _no_such_call(call: Call, number: int | None) -> str:
    if not number:
        return "Enter the number of a call, such as #123."
    if number == call.pk:
        return f"Call #{number} is this call. Enter the number of another one."
    return f"Call #{number} does not exist, or you don't have access to it."


def _uid(word: str, call: Call) -> UUID:
    try:
        return UUID(word)
    except ValueError:
        return call.uid


@require_safe
def page(request: WebRequest, uid: UUID, other: UUID) -> HttpResponse:
    """The older call is on the left."""
    one, two = sorted((visible_call(request, uid), visible_call(request, other)), key=lambda call: call.pk)
    for call in (one, two):
        if not visibility.may_read(request.user, call):
            raise access.Denied("view_payload", call.server)
        record_reading(Actor.of(request), call, call.arguments, call.result or call.late_result)
    left, right = _side(one), _side(two)
    context = {
        "nav": "servers",
        "call": one if one.uid == uid else two,
        "sides": [left, right],
        "arguments": _difference(
            left.arguments, right.arguments, argument_parts(left.arguments), argument_parts(right.arguments)
        ),
        "result": _difference(
            left.result, right.result, result_parts(one.method, left.result), result_parts(two.method, right.result)
        ),
    }
    return render(request, "calls/compare.html", context)


def _difference(left: str, right: str, old: Parts, new: Parts) -> VersionDifference | None:
    """None if a side cannot be shown."""
    return compare(old, new, others=True) if left and right else None


def _side(call: Call) -> Side:
    arguments, no_arguments = _text(call.arguments, f"The arguments of call #{call.pk} were erased.")
    found = call.result or call.late_result
    if found is None:
        return Side(call, arguments, "", no_arguments, f"Call #{call.pk} has no result.")
    result, no_result = _text(found, f"The result of call #{call.pk} was erased.")
    return Side(call, arguments, result, no_arguments, no_result)


def _text(payload: Payload, erased: str) -> tuple[str, str]:
    """The payload, indented so that lines can be compared, or why it cannot be shown."""
    try:
        text = payloads.read(payload)
    except SealError as problem:
        return "", str(problem)
    return ("", erased) if text is None else (_pretty(text), "")


def _pretty(text: str) -> str:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return json.dumps(value, indent=2, ensure_ascii=False)

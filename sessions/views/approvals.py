"""One agent call that waits for approval: what it would do, who requested it, and the two answers."""

from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from servers import access
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from sessions.approvals import deciding, reading
from sessions.approvals.deciding import Decision
from sessions.calls.operations import texts_of
from sessions.calls.payload_readings import record_reading
from sessions.enums import ApprovalState
from sessions.models import Approval
from sessions.views.call_answers import arguments_file

_APPROVED = {
    Decision.DONE: "Approved. The call is on its way.",
    Decision.CHANGED: "The call has changed since you opened it. Check it again.",
    Decision.VOID: "The call can no longer be sent. Nothing was approved.",
    Decision.PAUSED: "The session is paused, so nothing was approved. Resume it, then approve the call.",
}


@require_safe
def detail(request: HttpRequest, uid: UUID) -> HttpResponse:
    approval = _approval(request, uid)
    card = reading.card_of(request.user, approval)
    if card.readable and approval.state != ApprovalState.OPEN:
        record_reading(Actor.of(request), approval.call, approval.call.arguments)
    context = {
        "nav": "inbox",
        "card": card,
        "approval": approval,
        "call": approval.call,
        "words": texts_of(approval.call.method),
    }
    return render(request, "inbox/approval.html", context)


@require_safe
def arguments(request: HttpRequest, uid: UUID) -> HttpResponse:
    """Everything that the agent would send: the page shows only the beginning of long arguments."""
    approval = _approval(request, uid)
    if not reading.may_read(request.user, approval):
        raise access.Denied("answer_question", approval.call.server)
    if approval.state != ApprovalState.OPEN:
        record_reading(Actor.of(request), approval.call, approval.call.arguments)
    return arguments_file(approval.call)


@require_POST
def approve(request: HttpRequest, uid: UUID) -> HttpResponse:
    approval = _approval(request, uid)
    access.require(request.user, "answer_question", approval.call.server)
    try:
        done = deciding.approve(Actor.of(request), request.user, approval, request.POST.get("binding", ""))
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
    else:
        _say(request, done, _late(approval, " Nothing was approved.") if done is Decision.LATE else _APPROVED[done])
    return _see_other(approval)


@require_POST
def refuse(request: HttpRequest, uid: UUID) -> HttpResponse:
    approval = _approval(request, uid)
    if not deciding.may_refuse(request.user, approval):
        access.require(request.user, "answer_question", approval.call.server)
    try:
        done = deciding.refuse(Actor.of(request), request.user, approval, request.POST.get("reason", ""))
    except AuditUnavailable as problem:
        messages.error(request, str(problem))
    else:
        _say(request, done, "Refused. The agent will be notified." if done is Decision.DONE else _late(approval))
    return _see_other(approval)


def _late(approval: Approval, consequence: str = "") -> str:
    """The message for a late answer. An approved call must not appear unapproved: users would run it again by hand."""
    approval.refresh_from_db(fields=["state", "ended_by"])
    if approval.state == ApprovalState.APPROVED:
        return f"Already approved by {approval.ended_by}. The call is sent once."
    return f"This request was closed before your answer arrived.{consequence}"


def _say(request: HttpRequest, done: Decision, words: str) -> None:
    (messages.success if done is Decision.DONE else messages.info)(request, words)


def _approval(request: HttpRequest, uid: UUID) -> Approval:
    found = reading.seen(request.user).filter(uid=uid).first()
    if found is None:
        raise Http404("This request does not exist, or you don't have access to it.")
    return found


def _see_other(approval: Approval) -> HttpResponse:
    response = redirect("inbox:approval", approval.uid)
    response.status_code = 303
    return response

"""What happened to one call, oldest first: its request, its sending and further attempts, the server's questions,
cancellation, end and late answer."""

from collections.abc import Iterator

from django.db.models import Q
from django.urls import reverse

from servers import access
from servers.audit import query as audit
from servers.enums import AuditAction
from servers.models import AuditEvent
from sessions.calls import visibility
from sessions.calls.card import without_words
from sessions.explorer.rows import TimelineEntry
from sessions.models import Approval, Call

MOST = 200
_KINDS: dict[str, str] = {
    AuditAction.CALL_REQUEST: "request",
    AuditAction.CALL_SEND: "send",
    AuditAction.CALL_CANCEL: "cancel",
    AuditAction.CALL_FINISH: "end",
    AuditAction.QUESTION_RECEIVE: "question",
    AuditAction.QUESTION_TAKE: "question",
    AuditAction.QUESTION_ANSWER: "question",
    AuditAction.QUESTION_END: "question",
    AuditAction.APPROVAL_ASK: "question",
    AuditAction.APPROVAL_GRANT: "question",
    AuditAction.APPROVAL_REFUSE: "question",
    AuditAction.APPROVAL_EXPIRE: "question",
    AuditAction.APPROVAL_VOID: "question",
}


def timeline(user: access.User, call: Call) -> list[TimelineEntry]:
    """Read from the audit log for those who may read it, otherwise from the call's own row."""
    if not access.may(user, "view_auditevent"):
        return list(_of_row(user, call))
    events = access.audit_events(user).filter(call_uid=call.uid).order_by("seq")
    return [_of_event(event) for event in events[:MOST]]


def _of_event(event: AuditEvent) -> TimelineEntry:
    details = audit.readable_body(event)["details"]
    kind = "late" if details.get("late") else _KINDS.get(event.action, "event")
    label = "Late answer" if kind == "late" else audit.action_word(event.action)
    if kind == "send" and details.get("attempt", 1) > 1:
        kind, label = "attempt", f"Attempt {details['attempt']}"
    return TimelineEntry(
        at=event.at,
        kind=kind,
        label=label if kind != "end" else audit.outcome_word(event.outcome),
        detail=str(details.get("detail") or details.get("reason") or ""),
        who=event.actor_name,
        tone="" if kind in ("request", "send") else audit.tone(event.outcome),
        seq=event.seq,
        url=reverse("audit:detail", args=[event.seq]),
    )


def _of_row(user: access.User, call: Call) -> Iterator[TimelineEntry]:
    shown = call if visibility.may_read(user, call) else without_words(call)
    yield TimelineEntry(call.created_at, "request", "Call requested", who=call.user_name)
    for attempt in call.attempts.all()[:MOST]:
        first = attempt.number == 1
        label = "Call sent" if first else f"Attempt {attempt.number}"
        yield TimelineEntry(attempt.at, "send" if first else "attempt", label, "" if first else attempt.reason)
    for question in call.questions.filter(_seen(user)).order_by("pk")[:MOST]:
        yield TimelineEntry(question.created_at, "question", question.get_kind_display())
    if (approval := Approval.objects.filter(call=call).first()) is not None:
        yield TimelineEntry(approval.created_at, "question", "Approval requested", approval.why)
        if approval.ended_at is not None:
            yield TimelineEntry(approval.ended_at, "question", approval.get_state_display(), who=approval.ended_by)
    if call.cancel_requested_at:
        yield TimelineEntry(call.cancel_requested_at, "cancel", "Cancellation requested", who=call.cancel_requested_by)
    if call.finished_at:
        yield TimelineEntry(call.finished_at, "end", call.get_state_display(), shown.detail)


def _seen(user: access.User) -> Q:
    return access.seen_of_people(user, Q(call__personal=True), Q(call__user_id=user.pk))

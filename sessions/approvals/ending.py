"""How a request for approval ends without being approved. Each way is one conditional UPDATE of the call, in the
caller's transaction, with its events."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from servers import limits
from servers.audit.record import SYSTEM, Actor, Event
from servers.audit.writer import writer
from servers.enums import AuditAction, AuditOutcome
from sessions.approvals import validity
from sessions.calls.final_states import BATCH, FinalState, announce, end_now, event_of, finish_event
from sessions.enums import ApprovalState, CallState
from sessions.models import Approval, Call

REFUSED_BY_PERSON: Final = FinalState(
    CallState.HELD, CallState.REFUSED, AuditOutcome.DENIED, "", approval=ApprovalState.REFUSED
)
VOIDED: Final = FinalState(CallState.HELD, CallState.REFUSED, AuditOutcome.DENIED, "", approval=ApprovalState.VOIDED)
EXPIRED: Final = FinalState(
    CallState.HELD,
    CallState.EXPIRED,
    AuditOutcome.FAILED,
    f"No one approved it in time. {limits.stated('agent_approval_seconds')} It did not reach the server.",
    approval=ApprovalState.EXPIRED,
)


def finish(rows: Iterable[Approval], final: FinalState, actor: Actor = SYSTEM) -> list[Call]:
    """Finish the calls that are still held. `rows`: with their calls."""
    ended = []
    for row in rows:
        for call in end_now([row.call.uid], final):
            Approval.objects.filter(pk=row.pk).update(ended_by="" if actor is SYSTEM else actor.name[:150])
            announce(call)
            ended.append(call)
    return ended


def void(rows: Iterable[Approval], why: str) -> list[Event]:
    final = replace(VOIDED, detail=f"{why} It did not reach the server.")
    return ended_events(finish(rows, final), final, AuditAction.APPROVAL_VOID, AuditOutcome.CANCELLED)


def void_changed(identity_id: int) -> list[Event]:
    """Void approvals after this identity's definitions changed: they would now be for a different tool."""
    rows = _open().filter(call__identity_id=identity_id)
    found = [(row, why) for row in rows if (why := validity.changed(row.call))]
    return [event for row, why in found for event in void([row], why)]


def void_of_token(token_pk: int) -> None:
    """Void the approvals of a token that is no longer valid. Never waits."""
    if Approval.objects.filter(token_id=token_pk, state=ApprovalState.OPEN).exists():
        writer().submit(lambda: void(_open().filter(token_id=token_pk), "The token was revoked."), list)


def expire_without_worker() -> None:
    """`expire_overdue` for web processes, so that approvals expire even while no worker is alive. Never waits."""
    if Approval.objects.filter(state=ApprovalState.OPEN, expires_at__lte=timezone.now()).exists():
        writer().submit(expire_overdue, list)


def expire_overdue() -> list[Event]:
    """Runs in the caller's transaction."""
    calls = finish(_open().filter(expires_at__lte=timezone.now())[:BATCH], EXPIRED)
    return ended_events(calls, EXPIRED, AuditAction.APPROVAL_EXPIRE, AuditOutcome.FAILED)


def _open() -> QuerySet[Approval]:
    return Approval.objects.filter(state=ApprovalState.OPEN).select_related("call__server", "call__session")


def ended_events(
    calls: Iterable[Call], final: FinalState, action: AuditAction, outcome: AuditOutcome, actor: Actor = SYSTEM
) -> list[Event]:
    """Two events for each call: how the request for approval ended, and the end of the call itself."""
    found = []
    for call in calls:
        found.append(event_of(call, action, outcome, actor, {"detail": final.detail[:500]}))
        found.append(finish_event(call, final, actor))
    return found

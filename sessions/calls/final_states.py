"""Final states set without a response: for calls that no worker sent, whose worker died, or whose server is gone.

Each is a conditional UPDATE with its audit event in the same commit. If the state has changed meanwhile, nothing
happens.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.utils import timezone

from servers import limits
from servers.audit.proof.notes import stamp
from servers.audit.record import SYSTEM, Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.commit_hooks import after_commit
from servers.enums import ActionSource, AuditAction, AuditOutcome
from servers.models import Unredacted
from sessions import hints
from sessions.connections import commands
from sessions.enums import UNSENT, ApprovalState, CallState
from sessions.models import Approval, Call

#: most calls that end in one transaction
BATCH = 200


@dataclass(frozen=True)
class FinalState:
    """`also_held`: also for calls that wait for approval; their request for approval then ends as `approval`."""

    before: CallState
    after: CallState
    outcome: AuditOutcome
    detail: str
    only: Q = Q()
    also_held: bool = False
    approval: ApprovalState = ApprovalState.CANCELLED

    @property
    def states_before(self) -> tuple[CallState, ...]:
        return UNSENT if self.also_held else (self.before,)


NOBODY_SENT_IT = FinalState(
    CallState.REQUESTED,
    CallState.EXPIRED,
    AuditOutcome.FAILED,
    "No worker could send the call before its deadline. It did not reach the server.",
)
NOT_READY = FinalState(
    CallState.REQUESTED,
    CallState.EXPIRED,
    AuditOutcome.FAILED,
    "The session did not become ready before the call's deadline. It did not reach the server.",
)
BUSY = FinalState(
    CallState.REQUESTED,
    CallState.EXPIRED,
    AuditOutcome.FAILED,
    "The session was ready but did not get to this call before its deadline. "
    f"{limits.stated('session_calls')} It did not reach the server.",
)
REFUSED_LATE = FinalState(
    CallState.REQUESTED,
    CallState.NOT_SENT,
    AuditOutcome.FAILED,
    "The audit log could not be written in time (2 s, a fixed limit), so the call was refused. It did not reach the server.",
    also_held=True,
)
REFUSED_UNCONFIRMED = replace(
    REFUSED_LATE,
    detail="mcpadmin could not confirm that the audit log has the call, so the call was refused. It did not reach the server.",
)
CANCELLED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "Cancelled before it was sent. It did not reach the server.",
    also_held=True,
)
SERVER_CLOSED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The server was disabled before the call was sent. It did not reach the server.",
    also_held=True,
)
SESSION_CLOSED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The identity is no longer used, so its session was closed before the call was sent. It did not reach the server.",
    also_held=True,
)
USER_DISABLED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The user was disabled before the call was sent. It did not reach the server.",
    also_held=True,
)
SERVER_DELETED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The server was deleted before the call was sent. It did not reach the server.",
    also_held=True,
)


def end(uids: Iterable[UUID], final: FinalState, actor: Actor = SYSTEM) -> "Future[list[Call]]":
    """End up to BATCH calls. The future returns those that actually changed."""
    batch = list(uids)[:BATCH]

    def write() -> list[Call]:
        calls = end_now(batch, final)
        for call in calls:
            announce(call)
        return calls

    return writer().submit(write, lambda calls: [finish_event(call, final, actor) for call in calls])


def end_all(uids: Sequence[UUID], final: FinalState, actor: Actor = SYSTEM) -> None:
    """End all of them, batch by batch. Does not wait."""
    for start in range(0, len(uids), BATCH):
        end(uids[start : start + BATCH], final, actor)


def end_now(uids: Iterable[UUID], final: FinalState) -> list[Call]:
    """Only run the UPDATEs, in the caller's transaction."""
    now = timezone.now()
    changed = []
    for uid in uids:
        rows = Call.objects.filter(final.only, uid=uid, state__in=final.states_before)
        fields = {"state": final.after, "finished_at": now, "detail": final.detail, "version": F("version") + 1}
        if rows.update(**fields):
            call = Call.objects.select_related("server", "session").get(uid=uid)
            call.duration_ms = elapsed_ms(call.sent_at or call.created_at, now)
            Call.objects.filter(pk=call.pk).update(duration_ms=call.duration_ms)
            Unredacted.objects.filter(payload_id=call.arguments_id).delete()
            if call.way == ActionSource.AGENT:
                _end_approval(call, final)
            changed.append(call)
    return changed


def _end_approval(call: Call, final: FinalState) -> None:
    """End the call's request for approval, if it has an open one."""
    rows = Approval.objects.filter(call_id=call.pk, state=ApprovalState.OPEN)
    fields = {"state": final.approval, "ended_at": timezone.now(), "detail": final.detail, "version": F("version") + 1}
    if rows.update(**fields):
        uid = Approval.objects.values_list("uid", flat=True).get(call_id=call.pk)
        after_commit(hints.approval_changed, uid, call.uid)


def elapsed_ms(start: datetime, end: datetime) -> int:
    """Never negative, even if the clocks of two machines differ."""
    return max(0, round((end - start).total_seconds() * 1000))


def request_cancel(uids: Iterable[UUID], name: str) -> int:
    """Record in running calls that `name` asked to cancel them. Runs in the caller's transaction."""
    running = Call.objects.filter(uid__in=list(uids), state=CallState.SENT, cancel_requested_at=None)
    fields = {"cancel_requested_at": timezone.now(), "cancel_requested_by": name[:150]}
    return running.update(version=F("version") + 1, **fields)


def finish_event(call: Call, final: FinalState, actor: Actor = SYSTEM) -> Event:
    details = {"state": final.after.value, "detail": final.detail}
    context = {
        "session": str(call.session.uid) if call.session else "",
        "epoch": call.epoch,
        "bytes_in": call.argument_bytes,
        "duration_ms": call.duration_ms,
        "finished_at": stamp(call.finished_at) if call.finished_at else "",
    }
    return replace(event_of(call, AuditAction.CALL_FINISH, final.outcome, actor, details), context=context)


def event_of(
    call: Call, action: AuditAction, outcome: AuditOutcome, actor: Actor, details: dict[str, Any] | None = None
) -> Event:
    return Event(
        action=action,
        outcome=outcome,
        actor=actor,
        server=server_ref(call),
        identity_name=call.identity_name,
        subject=call.target[:300],
        call_uid=call.uid,
        details={"method": call.method, **(details or {})},
    )


def server_ref(call: Call) -> ServerRef | None:
    """None if the server's row is gone; the call keeps the server's name."""
    return None if call.server is None else ServerRef.of(call.server)


def announce(call: Call) -> None:
    """Notify the pages once the current transaction is committed. `call` must have been read with its server."""
    after_commit(notify, call)


def notify(call: Call) -> None:
    """Notify the pages. Call it after the commit. `call` must have been read with its server."""
    hints.call_changed(call.uid, call.version, call.server.uid if call.server else None)


def expire_without_worker() -> int:
    """End calls past their deadline if no worker is alive to do it. Returns how many were submitted to the writer."""
    due = Call.objects.filter(state=CallState.REQUESTED, deadline__lt=timezone.now())
    uids = list(due.values_list("uid", flat=True)[:BATCH])
    if not uids or commands.live_workers():
        return 0
    end(uids, NOBODY_SENT_IT)
    return len(uids)

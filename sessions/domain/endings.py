"""Final states that the web side may give a call: those of calls that no worker sent, or whose server is gone.

Each is a conditional UPDATE with its audit event in the same commit: where the state moved on meanwhile, nothing happens.
"""

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from servers.audit.record import SYSTEM, Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.enums import AuditAction, AuditOutcome
from sessions import bus
from sessions.domain import commands
from sessions.enums import CallState
from sessions.models import Call

BATCH = 200


@dataclass(frozen=True)
class Ending:
    before: CallState
    after: CallState
    outcome: AuditOutcome
    detail: str
    only: Q = Q()


_NOBODY_SENT_IT = Ending(
    CallState.REQUESTED,
    CallState.EXPIRED,
    AuditOutcome.FAILED,
    "No worker could send the call before its deadline. It did not reach the server.",
)
REFUSED_LATE = Ending(
    CallState.REQUESTED,
    CallState.NOT_SENT,
    AuditOutcome.FAILED,
    "The audit log could not be written in time, so the call was refused. It did not reach the server.",
)
CANCELLED_BEFORE = Ending(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "Cancelled before it was sent. It did not reach the server.",
)
SERVER_CLOSED_BEFORE = Ending(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The server was disabled before the call was sent. It did not reach the server.",
)
SESSION_CLOSED_BEFORE = Ending(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The identity is not used any more, so its session was closed before the call was sent. It did not reach the server.",
)
SERVER_DELETED_BEFORE = Ending(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The server was deleted before the call was sent. It did not reach the server.",
)


def end(uids: Iterable[UUID], ending: Ending, actor: Actor = SYSTEM) -> "Future[list[Call]]":
    """Give up to BATCH calls their end; the future holds those that really changed."""
    wanted = list(uids)[:BATCH]

    def write() -> list[Call]:
        calls = end_now(wanted, ending)
        for call in calls:
            transaction.on_commit(partial(tell, call), robust=True)
        return calls

    return writer().submit(write, lambda calls: [finish_event(call, ending, actor) for call in calls])


def end_now(uids: Iterable[UUID], ending: Ending) -> list[Call]:
    """The UPDATEs alone, inside the caller's transaction."""
    now = timezone.now()
    changed = []
    for uid in uids:
        rows = Call.objects.filter(ending.only, uid=uid, state=ending.before)
        fields = {"state": ending.after, "finished_at": now, "detail": ending.detail, "version": F("version") + 1}
        if rows.update(**fields):
            changed.append(Call.objects.select_related("server").get(uid=uid))
    return changed


def wish_cancelled(uids: Iterable[UUID], name: str) -> int:
    """Write the wish of `name` to cancel into calls that run; inside the caller's transaction."""
    running = Call.objects.filter(uid__in=list(uids), state=CallState.SENT, cancel_requested_at=None)
    wish = {"cancel_requested_at": timezone.now(), "cancel_requested_by": name[:150]}
    return running.update(version=F("version") + 1, **wish)


def finish_event(call: Call, ending: Ending, actor: Actor = SYSTEM) -> Event:
    return Event(
        action=AuditAction.CALL_FINISH,
        outcome=ending.outcome,
        actor=actor,
        server=server_ref(call),
        identity_name=call.identity_name,
        subject=call.target[:300],
        call_uid=call.uid,
        details={"method": call.method, "state": ending.after.value, "detail": ending.detail},
    )


def server_ref(call: Call) -> ServerRef | None:
    """None when the server's row is gone; the call keeps its name."""
    return None if call.server is None else ServerRef.of(call.server)


def tell(call: Call) -> None:
    """After the commit. `call` was read with its server."""
    bus.call_changed(call.uid, call.version, call.server.uid if call.server else None)


def expire_due() -> int:
    """End calls past their deadline while no worker lives to do it. Returns how many were put to the writer."""
    due = Call.objects.filter(state=CallState.REQUESTED, deadline__lt=timezone.now())
    uids = list(due.values_list("uid", flat=True)[:BATCH])
    if not uids or commands.live_workers():
        return 0
    end(uids, _NOBODY_SENT_IT)
    return len(uids)

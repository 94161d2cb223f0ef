"""Calls that a server runs as tasks: their rows, which of them are followed on after the call's own end, their cancellation.

A call whose worker is gone ends as *Outcome unknown*; its task goes on at the server. The session's next owner follows it
and keeps its result as the call's late result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from servers import permissions
from servers.audit.acts import audited
from servers.audit.record import Actor, Event
from servers.enums import AuditAction, AuditOutcome
from servers.models import Server
from servers.storable import storable
from sessions import hints
from sessions.calls import claims, visibility
from sessions.calls.claims import CallOutcome, PendingCall
from sessions.calls.final_states import event_of
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState
from sessions.mcp.core.tasks import TERMINAL, Status, TaskState
from sessions.models import Call, McpSession, ServerTask

MOST_SHOWN: Final = 100
_TEXT_CHARS: Final = 500
#: its call ended without an answer, and nothing has been found out since
ORPHANED: Final = Q(ended_at=None, call__state=CallState.OUTCOME_UNKNOWN, call__late_result=None)
#: a server that names no lifetime may keep a task for ever; we do not ask for ever
FOLLOWED_FOR: Final = timedelta(days=7)


@dataclass(frozen=True)
class Orphan:
    """A task to be followed on. `cancel`: a person asked for its end."""

    call: PendingCall
    task_id: str
    cancel: bool


# --- in workers ----------------------------------------------------------------------------------------------------------
def seen(call: PendingCall, lease: Lease, state: TaskState) -> None:
    """What the server said of the task, with its secrets masked. Safe to repeat."""
    now = timezone.now()
    fresh = {
        "status": state.status.value,
        "message": storable(state.message, _TEXT_CHARS),
        "ttl_seconds": state.ttl,
        "seen_at": now,
    }
    first = {
        "task_id": storable(state.task_id, 1024),
        "session_id": call.session_id,
        "begun_at": now,
        "changed_at": now,
    }
    row, is_new = ServerTask.objects.get_or_create(call_id=call.pk, defaults=fresh | first)
    if not is_new:
        moved = (row.status, row.message) != (fresh["status"], fresh["message"])
        ServerTask.objects.filter(pk=row.pk).update(**fresh, **({"changed_at": now} if moved else {}))
        if not moved:
            return
    _announce(lease.server_uid)


def orphans(session_id: int) -> list[Orphan]:
    """Tasks of this session that no call waits for any more."""
    rows = ServerTask.objects.filter(
        ORPHANED, session_id=session_id, begun_at__gt=timezone.now() - FOLLOWED_FOR
    ).select_related("call__arguments")
    return [Orphan(_pending(row.call), row.task_id, row.cancel_requested_at is not None) for row in rows[:MOST_SHOWN]]


def followed(call: PendingCall, lease: Lease) -> None:
    ServerTask.objects.filter(call_id=call.pk, followed_since=None).update(followed_since=timezone.now())
    _announce(lease.server_uid)


def ended(call: PendingCall, lease: Lease, outcome: CallOutcome) -> list[Event]:
    """Following it on is over: its result becomes the call's late result. Safe to repeat."""
    words = "" if outcome.result is not None else storable(outcome.detail or outcome.error_message, _TEXT_CHARS)
    ServerTask.objects.filter(call_id=call.pk, ended_at=None).update(ended_at=timezone.now(), detail=words)
    _announce(lease.server_uid)
    return claims.late(call, lease, outcome)


def _pending(call: Call) -> PendingCall:
    return PendingCall(
        call.pk,
        call.uid,
        call.session_id or 0,
        call.method,
        call.target,
        "",
        call.arguments.digest,
        Actor(call.user_id, call.user_name),
        argument_bytes=call.argument_bytes,
        sent_at=call.sent_at,
    )


def _announce(server_uid: UUID) -> None:
    transaction.on_commit(partial(hints.tasks_changed, server_uid), robust=True)


# --- for pages -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskLine:
    """`running`: whether the server may still be at work on it, as far as is known."""

    task: ServerTask
    call: Call
    running: bool

    @property
    def word(self) -> str:
        return _WORDS.get(self.task.status, self.task.status) if self.running or self._is_over else "Lost"

    @property
    def tone(self) -> str:
        if self.running:
            return "warn" if self.task.status == Status.INPUT_REQUIRED else "run"
        return (
            "ok" if self.task.status == Status.COMPLETED else "line" if self.task.status == Status.CANCELLED else "bad"
        )

    @property
    def _is_over(self) -> bool:
        return self.task.status in TERMINAL


_WORDS: Final[dict[str, str]] = {
    Status.WORKING: "Working",
    Status.INPUT_REQUIRED: "Input required",
    Status.COMPLETED: "Completed",
    Status.FAILED: "Failed",
    Status.CANCELLED: "Cancelled",
}


def lines(user: Any, server: Server) -> Sequence[TaskLine]:
    """The newest tasks of the calls that this user may see."""
    calls = Call.objects.filter(visibility.seen_by(user), server=server)
    newest = ServerTask.objects.filter(call__in=calls).select_related("call__user").order_by("-call_id")[:MOST_SHOWN]
    return [TaskLine(task, task.call, _is_running(task)) for task in newest]


def _is_running(task: ServerTask) -> bool:
    if task.status in TERMINAL:
        return False
    call = task.call
    orphaned = call.state == CallState.OUTCOME_UNKNOWN and task.ended_at is None and call.late_result_id is None
    return bool(call.state == CallState.SENT or orphaned)


def _wake(call: Call) -> None:
    """The owner of its session; a session without one looks at its tasks as it opens."""
    session = McpSession.objects.select_related("owner").filter(pk=call.session_id or 0).first()
    if session is not None and session.owner is not None:
        hints.wake_worker(session.owner.uid, "tasks", session.uid)


def request_cancel(actor: Actor, user: Any, call: Call) -> bool:
    """Of a task that is followed on. False where nothing is left to cancel, or a person asked already."""
    permissions.require(user, actor, "call_tool", call.server, subject=call.target)
    with audited(actor) as trail:
        rows = ServerTask.objects.filter(ORPHANED, call=call, cancel_requested_at=None).exclude(status__in=TERMINAL)
        if not rows.update(cancel_requested_at=timezone.now(), cancel_requested_by=actor.name):
            return False
        transaction.on_commit(partial(_wake, call), robust=True)
        trail.add(event_of(call, AuditAction.CALL_CANCEL, AuditOutcome.OK, actor, {"task": True}))
        if call.server is not None:
            _announce(call.server.uid)
    return True

"""Calls that a server runs as tasks: their rows, which tasks are still followed after their call has ended, and
cancelling.

A call whose worker is gone ends as *Outcome unknown*; its task continues on the server. The session's next owner
follows it and keeps its result as the call's late result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import structlog
from django.utils import timezone

from servers import permissions
from servers.audit.acts import audited
from servers.audit.record import Actor, Event
from servers.commit_hooks import after_commit
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome
from servers.models import Payload, Server
from servers.storable import storable
from sessions import hints
from sessions.calls import agent_calls, claims, intents, visibility
from sessions.calls.claims import CallOutcome, PendingCall
from sessions.calls.final_states import event_of
from sessions.connections import commands
from sessions.connections.lifecycle import Lease
from sessions.enums import CallState, SessionState
from sessions.mcp.core.capabilities import declares
from sessions.mcp.core.tasks import TERMINAL, Status, TaskState
from sessions.mcp.core.versions import REVISIONS
from sessions.models import Call, McpSession, ServerTask
from sessions.models.server_task import FOLLOWED_FOR

log = structlog.get_logger(__name__)

MOST_SHOWN: Final = 100
CANCEL_SENT: Final = "Cancellation sent to the server."
NO_CANCELLATION: Final = "The server does not support cancelling tasks."
_TEXT_CHARS: Final = 500
_NOT_STORED: Final = "The result was not stored, because it cannot be encrypted."
_NOT_FOLLOWED: Final = f"No longer tracked after {FOLLOWED_FOR.days} days."


@dataclass(frozen=True)
class Orphan:
    """A task that outlived its call and must still be followed. `cancel`: a person asked to cancel it."""

    call: PendingCall
    task_id: str
    cancel: bool


# --- in workers ----------------------------------------------------------------------------------------------------------
def seen(call: PendingCall, lease: Lease, state: TaskState) -> None:
    """Store what the server reported about the task, with its secrets masked. Safe to repeat."""
    now = timezone.now()
    fresh = {"status": state.status.value, "ttl_seconds": state.ttl, "seen_at": now}
    first = {
        "task_id": storable(state.task_id, 1024),
        "session_id": call.session_id,
        "begun_at": now,
        "changed_at": now,
    }
    row, is_new = ServerTask.objects.get_or_create(call_id=call.pk, defaults=fresh | first)
    rows = ServerTask.objects.filter(pk=row.pk)
    if not is_new:
        rows.update(**fresh)  # locks the row: an erasure either comes after us, or is seen by `_words`
    message = _words(call, state.message)
    if is_new or (row.status, row.message) != (fresh["status"], message):
        rows.update(message=message, changed_at=now)
        _announce(lease.server_uid)


def _words(call: PendingCall, text: str) -> str:
    """Empty once the arguments of the call are erased: the server may repeat them."""
    erased = Call.objects.filter(pk=call.pk, arguments__erased_at__isnull=False)
    return "" if not text or erased.exists() else storable(text, _TEXT_CHARS)


def orphans(session_id: int) -> list[Orphan]:
    """Tasks of this session that no call waits for any more."""
    rows = ServerTask.objects.followed_on().filter(session_id=session_id).select_related("call__arguments")
    found = [(row, _pending(row.call)) for row in rows[:MOST_SHOWN]]
    return [Orphan(call, row.task_id, row.cancel_requested_at is not None) for row, call in found if call is not None]


def followed(call: PendingCall, lease: Lease) -> None:
    ServerTask.objects.filter(call_id=call.pk, followed_since=None).update(followed_since=timezone.now())
    _announce(lease.server_uid)


def ended(call: PendingCall, lease: Lease, outcome: CallOutcome, row: Payload | None = None) -> list[Event]:
    """The task has ended: its result becomes the call's late result. `row`: from `claims.packed`. Safe to repeat."""
    rows = ServerTask.objects.filter(call_id=call.pk)
    if rows.filter(ended_at=None).update(ended_at=timezone.now(), detail="") and outcome.result is None:
        rows.update(detail=_words(call, outcome.detail or outcome.error_message))
    _announce(lease.server_uid)
    events = claims.late(call, lease, outcome, row)
    if outcome.result is not None and not Call.objects.filter(pk=call.pk, late_result__isnull=False).exists():
        rows.update(detail=_NOT_STORED)
    return events


def not_cancelled(call: PendingCall, lease: Lease, why: str) -> None:
    """The server refused the cancellation that a person asked for, who may ask again."""
    detail = _words(call, f"Not cancelled. {why}")
    fields = {"cancel_requested_at": None, "cancel_requested_by": "", "detail": detail}
    ServerTask.objects.filter(call_id=call.pk, ended_at=None).update(**fields)
    _announce(lease.server_uid)


def give_up_old() -> int:
    """Stop following old tasks. Returns how many."""
    over = ServerTask.objects.orphaned().filter(begun_at__lte=timezone.now() - FOLLOWED_FOR)
    return over.update(ended_at=timezone.now(), detail=_NOT_FOLLOWED)


def _pending(call: Call) -> PendingCall | None:
    """None if its agent's answers cannot be decrypted: then it is unknown who may be asked."""
    try:
        agent = agent_calls.agent_of(call)
    except SealError as problem:
        log.error("calls.task_unreadable", call=str(call.uid), problem=str(problem))
        return None
    return PendingCall(
        call.pk,
        call.uid,
        call.session_id or 0,
        call.method,
        call.target,
        "",
        call.arguments.digest,
        Actor(call.user_id, call.user_name, way=call.way),
        argument_bytes=call.argument_bytes,
        sent_at=call.sent_at,
        agent=agent,
    )


def _announce(server_uid: UUID) -> None:
    after_commit(hints.tasks_changed, server_uid)


# --- for pages -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class TaskLine:
    """`running`: whether the server may still be working on it, as far as is known. `readable`: whether the reader may
    see what the server says about it, which may repeat arguments. Templates must show only the texts of this line."""

    task: ServerTask
    call: Call
    running: bool
    readable: bool

    @property
    def message(self) -> str:
        return self.task.message if self.readable else ""

    @property
    def detail(self) -> str:
        return self.task.detail if self.readable else ""

    @property
    def word(self) -> str:
        status = self.task.status if self.running else self._end
        return _WORDS.get(status, status) if status else "Lost"

    @property
    def tone(self) -> str:
        if self.running:
            return "warn" if self.task.status == Status.INPUT_REQUIRED else "run"
        return "ok" if self._end == Status.COMPLETED else "line" if self._end == Status.CANCELLED else "bad"

    @property
    def cancellable(self) -> bool:
        asked = self.task.cancel_requested_at or self.call.cancel_requested_at
        return self.running and not asked and not _cannot_cancel(self.task)

    @property
    def followed(self) -> str:
        """What happens to a task whose call has ended without an answer."""
        if not self.running or self.call.state == CallState.SENT:
            return ""
        if not _is_connected(self.task):
            return "Tracked again once the server is connected"
        return "Tracked after the worker was lost" if self.task.followed_since else ""

    @property
    def _end(self) -> str:
        """The status in which it ended; empty if unknown. A call may end before the server reports the end of its
        task."""
        if self.task.status in TERMINAL:
            return self.task.status
        return Status.COMPLETED if self.call.late_result_id is not None else _ENDED_BY.get(self.call.state, "")


_ENDED_BY: Final[dict[str, Status]] = {
    CallState.SUCCEEDED: Status.COMPLETED,
    CallState.TOOL_ERROR: Status.FAILED,
    CallState.RPC_ERROR: Status.FAILED,
    CallState.FAILED: Status.FAILED,
    CallState.CANCELLED: Status.CANCELLED,
}
_WORDS: Final[dict[str, str]] = {
    Status.WORKING: "Working",
    Status.INPUT_REQUIRED: "Input required",
    Status.COMPLETED: "Completed",
    Status.FAILED: "Failed",
    Status.CANCELLED: "Cancelled",
}


def lines(user: Any, server: Server) -> Sequence[TaskLine]:
    """The newest tasks of the calls that this user may see."""
    calls = Call.objects.filter(visibility.visible_q(user), server=server)
    rows = ServerTask.objects.filter(call__in=calls).select_related("call__user", "session").order_by("-call_id")
    return [
        TaskLine(task, task.call, _is_running(task), visibility.may_read(user, task.call)) for task in rows[:MOST_SHOWN]
    ]


def _is_running(task: ServerTask) -> bool:
    if task.status in TERMINAL:
        return False
    call = task.call
    orphaned = call.state == CallState.OUTCOME_UNKNOWN and task.ended_at is None and call.late_result_id is None
    return bool(call.state == CallState.SENT or (orphaned and task.begun_at > timezone.now() - FOLLOWED_FOR))


def _is_connected(task: ServerTask) -> bool:
    return task.session is not None and task.session.state == SessionState.READY


def _cannot_cancel(task: ServerTask) -> bool:
    """Whether its server, as connected now, does not support cancelling tasks. Only 2025-11-25 allows that."""
    if task.session is None or not _is_connected(task):
        return False
    revision = REVISIONS.get(task.session.revision)
    core = revision is not None and revision.core_tasks
    return core and not declares(task.session.server_capabilities, "tasks", "cancel")


def cannot_cancel(call: Call) -> bool:
    task = ServerTask.objects.select_related("session").filter(call=call).first()
    return task is not None and _cannot_cancel(task)


def _wake(call: Call) -> None:
    """Wake the owner of its session; a session without an owner checks its tasks when it opens."""
    session = McpSession.objects.select_related("owner").filter(pk=call.session_id or 0).first()
    if session is not None and session.owner is not None:
        hints.wake_worker(session.owner.uid, "tasks", session.uid)
    elif session is not None:
        commands.wake_owner(session.uid)


def request_cancel(actor: Actor, user: Any, call: Call) -> str:
    """Cancel a task that is still followed; its session is opened for that. Returns a message for the page, empty if
    nothing is left to cancel or a person has already asked."""
    permissions.require(user, actor, "call_tool", call.server, subject=call.target)
    with audited(actor) as trail:
        rows = ServerTask.objects.followed_on().filter(call=call, cancel_requested_at=None)
        task = rows.exclude(status__in=TERMINAL).select_related("session").first()
        asked = {"cancel_requested_at": timezone.now(), "cancel_requested_by": actor.name, "detail": ""}
        if task is None or not rows.filter(pk=task.pk).update(**asked):
            return ""
        if task.session_id is not None:
            intents.request_session(task.session_id)
        after_commit(_wake, call)
        trail.add(event_of(call, AuditAction.CALL_CANCEL, AuditOutcome.OK, actor, {"task": True}))
        if call.server is not None:
            _announce(call.server.uid)
    return CANCEL_SENT if _is_connected(task) else "The cancellation is sent once the server is connected."

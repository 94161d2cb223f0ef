"""Pause, resume, disconnect and retry a session.

Each is an UPDATE on condition that the row is still as the person saw it: if two admins act at once, one gets True.
"""

from uuid import UUID

from django.db.models import F, Q

from servers.audit.record import Actor
from servers.enums import AuditAction, AuditOutcome
from sessions.calls import final_states
from sessions.calls.final_states import FinalState
from sessions.connections import commands
from sessions.connections.commands import Command
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.models import Call, McpSession

#: conditions in which an immediate attempt may help
RETRYABLE = frozenset(
    {
        SessionCondition.BACKING_OFF,
        SessionCondition.FAILING,
        SessionCondition.NEEDS_AUTH,
        SessionCondition.INCOMPATIBLE,
        SessionCondition.REFUSED,
    }
)
PAUSED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The session was paused before the call was sent. It did not reach the server.",
)
DISCONNECTED_BEFORE = FinalState(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The session was disconnected before the call was sent. It did not reach the server.",
)
_WAITS = Q(desired=Desired.OPEN, paused=False, state=SessionState.DISCONNECTED, condition__in=RETRYABLE)
_ASKED = Q(restart_requested__gt=F("restart_done"))


def pause(actor: Actor, session: McpSession) -> bool:
    """Calls in flight end, then the session is closed until a person resumes it. False if it is already paused."""
    fields = {"paused": True, "paused_by": actor.name[:150]}
    changed = commands.give(
        actor, session, Command(AuditAction.SESSION_PAUSE, fields, Q(paused=True), "pause", "Pause")
    )
    if changed:
        final_states.end_all(_waiting_calls(session), PAUSED_BEFORE, actor)
    return changed


def disconnect(actor: Actor, session: McpSession) -> bool:
    """Calls in flight are cancelled and waiting calls end; a later call opens the session again. False if it is already
    closed."""
    waiting = _waiting_calls(session)  # read first: a later call requests the session again
    changed = commands.close_session(actor, session)
    if changed:
        final_states.end_all(waiting, DISCONNECTED_BEFORE, actor)
    return changed


def _waiting_calls(session: McpSession) -> list[UUID]:
    waiting = Call.objects.filter(session_id=session.pk, state=CallState.REQUESTED)
    return list(waiting.values_list("uid", flat=True))


def resume(actor: Actor, session: McpSession) -> bool:
    """False if it is no longer paused."""
    fields = {"paused": False, "paused_by": ""}
    command = Command(AuditAction.SESSION_RESUME, fields, Q(paused=False), "resume", "Resume")
    return commands.give(actor, session, command)


def retry(actor: Actor, session: McpSession) -> bool:
    """Attempt now instead of later. False if the session is not waiting, or a person already asked."""
    fields = {"restart_requested": F("restart_requested") + 1}
    return commands.give(actor, session, Command(AuditAction.SESSION_RETRY, fields, ~_WAITS | _ASKED, "retry", "Retry"))

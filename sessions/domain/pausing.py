"""Pause, resume and retry: what a person does about a session that is not to be, or should already be, open.

Each changes the row only where it stands as the person saw it, so of two admins at once one hears that it is done.
"""

from django.db.models import F, Q

from servers.audit.record import Actor
from servers.enums import AuditAction, AuditOutcome
from sessions.domain import commands, endings
from sessions.domain.commands import Order
from sessions.domain.endings import Ending
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.models import Call, McpSession

#: where a try at once may help
RETRYABLE = frozenset(
    {
        SessionCondition.BACKING_OFF,
        SessionCondition.FAILING,
        SessionCondition.NEEDS_AUTH,
        SessionCondition.INCOMPATIBLE,
    }
)
PAUSED_BEFORE = Ending(
    CallState.REQUESTED,
    CallState.CANCELLED,
    AuditOutcome.CANCELLED,
    "The session was paused before the call was sent. It did not reach the server.",
)
_WAITS = Q(desired=Desired.OPEN, paused=False, state=SessionState.DISCONNECTED, condition__in=RETRYABLE)
_ASKED = Q(restart_requested__gt=F("restart_done"))


def pause(actor: Actor, session: McpSession) -> bool:
    """Calls in flight end, then the session is closed and stays so until somebody resumes it. False when it is paused."""
    fields = {"paused": True, "paused_by": actor.name[:150]}
    changed = commands.give(actor, session, Order(AuditAction.SESSION_PAUSE, fields, Q(paused=True), "pause", "Pause"))
    if changed:
        waiting = Call.objects.filter(session_id=session.pk, state=CallState.REQUESTED).values_list("uid", flat=True)
        endings.end(list(waiting[: endings.BATCH]), PAUSED_BEFORE, actor)
    return changed


def resume(actor: Actor, session: McpSession) -> bool:
    """False when it is not paused any more."""
    fields = {"paused": False, "paused_by": ""}
    order = Order(AuditAction.SESSION_RESUME, fields, Q(paused=False), "resume", "Resume")
    return commands.give(actor, session, order)


def retry(actor: Actor, session: McpSession) -> bool:
    """Try now instead of later. False when it does not wait, or somebody asked already."""
    fields = {"restart_requested": F("restart_requested") + 1}
    return commands.give(actor, session, Order(AuditAction.SESSION_RETRY, fields, ~_WAITS | _ASKED, "retry", "Retry"))

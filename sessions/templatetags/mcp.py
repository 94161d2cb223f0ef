"""Words and looks of calls, one table for all pages."""

from django import template

from sessions.enums import CallState
from sessions.models import Call

register = template.Library()

# state: (tone of the kit, icon)
LOOKS: dict[str, tuple[str, str]] = {
    CallState.REQUESTED: ("run", "loader-2"),
    CallState.SENT: ("run", "loader-2"),
    CallState.SUCCEEDED: ("ok", "check"),
    CallState.TOOL_ERROR: ("bad", "alert-triangle"),
    CallState.RPC_ERROR: ("bad", "alert-circle"),
    CallState.FAILED: ("bad", "plug-x"),
    CallState.CANCELLED: ("warn", "player-stop"),
    CallState.OUTCOME_UNKNOWN: ("warn", "clock-x"),
    CallState.NOT_SENT: ("warn", "ban"),
    CallState.REFUSED: ("viol", "lock"),
    CallState.EXPIRED: ("warn", "clock-x"),
}


@register.inclusion_tag("sessions/calls/_pill.html")
def call_pill(state: str) -> dict[str, str]:
    tone, icon = LOOKS[state]
    return {"tone": tone, "icon": icon, "word": CallState(state).label}


@register.filter
def call_ms(call: Call) -> float | None:
    """Milliseconds from the request to the end, or None while it runs."""
    if call.finished_at is None:
        return None
    return (call.finished_at - call.created_at).total_seconds() * 1000

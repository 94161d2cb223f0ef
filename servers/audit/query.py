"""Reading the log: the groups of its events, rows for readers who catch up, and the labels of an event."""

import json
from typing import Any

from django.urls import reverse

from servers.audit.record import CHAIN
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent, AuditHead

#: group -> (label, beginnings of the actions in it); an action belongs to the first group that fits
GROUPS = {
    "calls": ("Calls", ("call:",)),
    "inbox": ("Inbox", ("inbox:",)),
    "sessions": ("Sessions and tests", ("server:session:", "server:connection:")),
    "credentials": ("Credentials", ("server:credential:",)),
    "servers": ("Servers", ("server:",)),
    "sign-in": ("Sign-in and passwords", ("account:session:", "account:password:")),
    "instance": ("Instance", ("instance:",)),
    "permissions": ("Accounts and permissions", ("account:",)),
}
#: group as links and saved queries may still call it -> its name now
RENAMED = {"rights": "permissions"}
_TONES = {
    AuditOutcome.OK: "ok",
    AuditOutcome.DENIED: "viol",
    AuditOutcome.FAILED: "bad",
    AuditOutcome.TOOL_ERROR: "bad",
    AuditOutcome.RPC_ERROR: "bad",
    AuditOutcome.UNKNOWN: "warn",
}


def group_of(action: str) -> str:
    """Empty if it is not an action, because someone tampered with it."""
    return next((name for name, (_, beginnings) in GROUPS.items() if action.startswith(beginnings)), "")


def actions_of(group: str) -> list[AuditAction]:
    return [action for action in AuditAction if group_of(action) == group]


def rows_after(seq: int, limit: int) -> list[AuditEvent]:
    """The events after `seq`, for a reader who has seen it, oldest first, at most `limit`."""
    return list(AuditEvent.objects.filter(seq__gt=seq).order_by("seq")[:limit])


def head_seq() -> int:
    return AuditHead.objects.filter(chain=CHAIN).values_list("seq", flat=True).first() or 0


def readable_body(event: AuditEvent) -> dict[str, Any]:
    """The body with `details` and `digests`. Empty if it cannot be read: readers of an event that was tampered with
    must be told so, and one such event must not keep them from reading the others."""
    try:
        found = json.loads(event.body)
    except (ValueError, TypeError, RecursionError):
        found = None
    body = found if isinstance(found, dict) else {}
    details, digests = (part if isinstance(part := body.get(name), dict) else {} for name in ("details", "digests"))
    return body | {
        "details": details,
        "digests": {role: digest for role, digest in digests.items() if isinstance(digest, str)},
    }


def exchange(event: AuditEvent) -> list[AuditEvent]:
    """All events of the same call in order; for other events, only the event itself."""
    if event.call_uid is None:
        return [event]
    return list(AuditEvent.objects.filter(call_uid=event.call_uid).order_by("seq"))


# --- words -------------------------------------------------------------------------------------------------------------
def event_row(event: AuditEvent) -> dict[str, Any]:
    """The row of the live topic, and of an exchange: plain JSON values, no detail and no payload."""
    return {
        "seq": event.seq,
        "at": event.at.isoformat(),
        "action": event.action,
        "word": action_word(event.action),
        "group": group_of(event.action),
        "subject": event.subject,
        "outcome": event.outcome,
        "outcome_word": outcome_word(event.outcome),
        "tone": tone(event.outcome),
        "server": str(event.server_uid) if event.server_uid else "",
        "server_name": event.server_name,
        "user": event.actor_name,
        "identity": event.identity_name,
        "call": str(event.call_uid) if event.call_uid else "",
        "url": reverse("audit:detail", args=[event.seq]),
    }


def action_word(action: str) -> str:
    return AuditAction(action).label if action in AuditAction.values else action


def outcome_word(outcome: str) -> str:
    return AuditOutcome(outcome).label if outcome in AuditOutcome.values else outcome


def tone(outcome: str) -> str:
    return _TONES.get(AuditOutcome(outcome), "") if outcome in AuditOutcome.values else ""

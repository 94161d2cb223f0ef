"""Erasing one payload at a person's request, with the reason in the audit log. It cannot be undone."""

from typing import Any

from django.core.exceptions import ValidationError

from servers import permissions
from servers.audit import payloads
from servers.audit.acts import audited
from servers.audit.record import Actor, Event
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from servers.models import Payload
from servers.privacy.payload_readings import PayloadContext

PERMISSION = "erase_payload"
REASON_CHARS = 500


class StillNeeded(Exception):
    """The call or the question has not ended: its arguments may still have to be sent. The message is for the page."""


def erase(
    actor: Actor,
    user: Any,
    payload: Payload,
    reason: str,
    context: PayloadContext,
    *,
    over: bool = True,
) -> bool:
    """Returns False if it was already erased. `over`: whether what the payload belongs to has ended.

    The event names the digest as `erased` (docs/audit-proof.md). Raises access.Denied (recorded), ValidationError for a
    missing or overlong reason, StillNeeded.
    """
    permissions.require(user, actor, PERMISSION, subject=context.subject[:300])
    reason = reason.strip()
    if not reason:
        raise ValidationError("Enter a reason. The audit log keeps it.")
    if len(reason) > REASON_CHARS:
        raise ValidationError(f"At most {REASON_CHARS} characters (a fixed limit).")
    if not over:
        kind = PayloadKind(payload.kind).label.lower()
        raise StillNeeded(f"The {kind} cannot be erased while the call runs. Cancel it, or wait until it has ended.")
    with audited(actor) as trail:
        if not payloads.erase_all([payload.pk], everywhere=True):
            return False
        trail.add(
            Event(
                AuditAction.PAYLOAD_ERASE,
                AuditOutcome.OK,
                actor,
                context.server,
                identity_name=context.identity_name,
                subject=context.subject[:300],
                call_uid=context.call_uid,
                details={"kind": payload.kind, "reason": reason, "bytes": payload.size},
                digests={"erased": payload.digest},
            )
        )
    payload.refresh_from_db()
    return True

"""Permission checks inside the verbs: a refusal is recorded in the audit log, whatever page or command calls the
verb."""

from typing import Any

from django.db import transaction

from servers import access
from servers.audit.record import Actor, Event, ServerRef, record
from servers.enums import AuditAction, AuditOutcome
from servers.models import Server


def require(user: Any, actor: Actor, permission: str, server: Server | None = None, subject: str = "") -> None:
    """Raises access.Denied, already recorded. Call it before the verb's transaction, never inside."""
    try:
        access.require(user, permission, server)
    except access.Denied as denied:
        record_denial(actor, denied, subject)
        raise


def record_denial(actor: Actor, denied: access.Denied, subject: str = "", **details: Any) -> None:
    """Record it in a separate commit: the refused action leaves no other trace."""
    server = denied.server
    subject = subject or (server.name if server else denied.permission)
    record_refusal(actor, server, subject, permission=denied.permission, **details)
    denied.recorded = True


def record_refusal(actor: Actor, server: Server | None, subject: str, *, permission: str = "", **details: Any) -> None:
    """Record an action that a rule forbids although no permission is missing, in the same way as a missing permission.
    `permission`: the codename, or a description of what was refused."""
    if permission:
        details["right"] = permission  # a key that readers of exported and forwarded events know
    of_server = ServerRef.of(server) if server else None
    event = Event(AuditAction.PERMISSION_DENY, AuditOutcome.DENIED, actor, of_server, subject=subject, details=details)
    with transaction.atomic(durable=True):
        record(event)

"""Checks of rights inside the verbs: whichever page or command calls a verb, a refusal is in the audit log first."""

from typing import Any

from django.db import transaction

from servers import access
from servers.audit.record import Actor, Event, ServerRef, record
from servers.enums import AuditAction, AuditOutcome
from servers.models import Server


def require(user: Any, actor: Actor, right: str, server: Server | None = None, subject: str = "") -> None:
    """Raises access.Denied, recorded. Call it before the verb's transaction, never inside."""
    try:
        access.require(user, right, server)
    except access.Denied as denied:
        record_denial(actor, denied, subject)
        raise


def record_denial(actor: Actor, denied: access.Denied, subject: str = "", **details: Any) -> None:
    """In a commit of its own: the act that was refused leaves no other trace."""
    server = denied.server
    subject = subject or (server.name if server else denied.right)
    record_refusal(actor, server, subject, right=denied.right, **details)
    denied.recorded = True


def record_refusal(actor: Actor, server: Server | None, subject: str, **details: Any) -> None:
    """Of an act that a rule forbids although no right is lacking, as one that is lacking is recorded."""
    of_server = ServerRef.of(server) if server else None
    event = Event(AuditAction.PERMISSION_DENY, AuditOutcome.DENIED, actor, of_server, subject=subject, details=details)
    with transaction.atomic(durable=True):
        record(event)

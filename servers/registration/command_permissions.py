"""The choke point for commands. A registered command is code that runs on the workers, so registering, changing,
cloning, enabling, importing or testing one is checked here, regardless of the page, form or command line used."""

from typing import Any

from servers import access, permissions
from servers.audit.record import Actor
from servers.enums import TransportKind
from servers.models import Server


def require_stdio_permission(
    user: Any, actor: Actor, transport: str, server_name: str, server: Server | None = None
) -> None:
    """Require the permission if the transport runs a command. Raises access.Denied (a PermissionDenied) after recording
    the refusal in the audit log."""
    if transport == TransportKind.STDIO:
        permissions.require(user, actor, "manage_stdio", server, subject=server_name)


def may_change(user: Any, server: Server) -> bool:
    """Whether this person may save the server, choose its era, clone or enable it. For disabling, archiving and
    restoring, permission to change servers is sufficient."""
    return access.may(user, "change") and (server.transport != TransportKind.STDIO or access.may(user, "manage_stdio"))

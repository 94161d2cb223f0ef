"""The choke point of commands. A registered command is code that runs on the workers, so whoever registers, changes,
clones, enables, imports or tests one passes here, whichever page, form or command line they came by."""

from typing import Any

from servers.audit.record import Actor
from servers.domain import rights
from servers.models import Server


def require_stdio_right(user: Any, actor: Actor, server_name: str, server: Server | None = None) -> None:
    """Raises access.Denied (a PermissionDenied) after writing the refusal into the audit log."""
    rights.require(user, actor, "manage_stdio", server, subject=server_name)

"""What a call is aimed at: a server that takes calls, its shared session and the tool as the server described it last."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from servers import access
from servers.audit.record import Actor
from servers.domain import rights
from servers.enums import DefinitionKind, IdentityKind
from servers.models import Definition, Server
from sessions.domain import commands
from sessions.domain.arguments import Rejected
from sessions.models import McpSession


@dataclass(frozen=True)
class Target:
    """`owner_uid` and `epoch` name the live worker that holds the session; without one the session has to be asked for."""

    server: Server
    session: McpSession
    definition: Definition
    owner_uid: UUID | None

    @cached_property
    def tool(self) -> Mapping[str, Any]:
        """The server's own description. Only its top level is known to be an object."""
        body = json.loads(self.definition.body)
        return body if isinstance(body, dict) else {}

    @property
    def schema(self) -> Any:
        return self.tool.get("inputSchema", {"type": "object"})

    @property
    def destructive(self) -> bool:
        """Only what the server says itself; the specification's default (true) would make every tool ask."""
        annotations = self.tool.get("annotations")
        hints = annotations if isinstance(annotations, dict) else {}
        return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True


def find_target(user: Any, actor: Actor, server_uid: UUID, tool: str) -> Target:
    """Two queries.

    Raises Http404 for a server that `user` may not see, access.Denied (recorded) without the right to call, and Rejected
    for a server that takes no call now or does not offer the tool.
    """
    session = _session(user, server_uid)
    server = session.server
    rights.require(user, actor, "call_tool", server, subject=tool)
    if server.archived_at is not None:
        raise Rejected(f"{server.name} is archived. Restore and enable it before you call its tools.")
    if not server.enabled:
        raise Rejected(f"{server.name} is disabled. Enable it before you call its tools.")
    definition = Definition.objects.filter(server=server, kind=DefinitionKind.TOOL, key=tool, removed_at=None).first()
    if definition is None:
        raise Rejected(f"{server.name} offers no tool of this name now. Refresh its list, or choose another tool.")
    owner = session.owner if commands.alive(session.owner) else None
    return Target(server, session, definition, owner.uid if owner else None)


def _session(user: Any, server_uid: UUID) -> McpSession:
    if not access.may(user, "view"):
        return commands.shared_session(access.server_by_uid(user, server_uid))
    shared = McpSession.objects.filter(server__uid=server_uid, identity__kind=IdentityKind.SHARED)
    session = shared.select_related("server", "identity", "owner").first()
    return session or commands.shared_session(access.server_by_uid(user, server_uid))

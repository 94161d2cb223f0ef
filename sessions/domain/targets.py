"""What a call is aimed at: a server that takes calls, its shared session and the tool as the server described it last."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from servers import access
from servers.audit.record import Actor, ServerRef
from servers.domain import rights
from servers.enums import DefinitionKind, IdentityKind
from servers.models import Definition, Identity, Server
from sessions.domain import commands
from sessions.domain.arguments import Rejected
from sessions.enums import Desired
from sessions.models import McpSession, Worker


@dataclass(frozen=True)
class Target:
    """`owner_uid` names the live worker that holds the session; without one the session has to be asked for."""

    server_id: int
    server_uid: UUID
    server_name: str
    enabled: bool
    archived: bool
    connect_seconds: int
    session_id: int
    session_uid: UUID
    desired: str
    epoch: int
    identity_id: int
    identity_name: str
    owner_id: int | None
    owner_uid: UUID | None
    tool_name: str
    digest: str | None
    body: str | None

    @property
    def server(self) -> ServerRef:
        return ServerRef(self.server_uid, self.server_name)

    @property
    def wanted(self) -> bool:
        return self.desired == Desired.OPEN

    @cached_property
    def tool(self) -> Mapping[str, Any]:
        """The server's own description. Only its top level is known to be an object."""
        body = json.loads(self.body or "{}")
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


def find_target(user: access.User, actor: Actor, server_uid: UUID, tool: str) -> Target:
    """One query.

    Raises Http404 for a server that `user` may not see, access.Denied (recorded) without the right to call, and Rejected
    for a server that takes no call now or does not offer the tool.
    """
    _require_rights(user, actor, server_uid, tool)
    target = _read(server_uid, tool)
    if target is None:
        commands.shared_session(access.server_by_uid(user, server_uid))  # its first call makes the session's row
        target = _read(server_uid, tool)
    if target is None:
        raise Rejected("The server was deleted meanwhile.")
    if target.archived:
        raise Rejected(f"{target.server_name} is archived. Restore and enable it before you call its tools.")
    if not target.enabled:
        raise Rejected(f"{target.server_name} is disabled. Enable it before you call its tools.")
    if target.body is None:
        raise Rejected(f"{target.server_name} offers no tool of this name now. Refresh its list, or choose another.")
    return target


def _require_rights(user: access.User, actor: Actor, server_uid: UUID, tool: str) -> None:
    """The row is only read where it is needed to say no."""
    if not access.may(user, "view") or not access.may(user, "call_tool"):
        rights.require(user, actor, "call_tool", access.server_by_uid(user, server_uid), subject=tool)


# --- SQL: through the ORM this read costs eight times as much, on the path of every call ------------------------------
_TABLES = {model.__name__: model._meta.db_table for model in (Server, Identity, McpSession, Worker, Definition)}
_READ = """
SELECT server.id, server.uid, server.name, server.enabled, server.archived_at IS NOT NULL,
       server.connect_timeout_seconds, session.id, session.uid, session.desired, session.epoch,
       identity.id, identity.name, worker.id, worker.uid,
       definition.digest, definition.body
FROM {Server} server
JOIN {Identity} identity ON identity.server_id = server.id AND identity.kind = %s
JOIN {McpSession} session ON session.server_id = server.id AND session.identity_id = identity.id
LEFT JOIN {Worker} worker ON worker.id = session.owner_id AND worker.heartbeat_at > %s
LEFT JOIN {Definition} definition ON definition.server_id = server.id AND definition.kind = %s
     AND definition.key = %s AND definition.removed_at IS NULL
WHERE server.uid = %s
""".format(**_TABLES)


def _read(server_uid: UUID, tool: str) -> Target | None:
    fresh = timezone.now() - timedelta(seconds=settings.STALE_SECONDS)
    values = [
        IdentityKind.SHARED.value,
        connection.ops.adapt_datetimefield_value(fresh),
        DefinitionKind.TOOL.value,
        tool,
        Server._meta.get_field("uid").get_db_prep_value(server_uid, connection),
    ]
    with connection.cursor() as cursor:
        cursor.execute(_READ, values)
        row = cursor.fetchone()
    if row is None:
        return None
    owner_id, owner_uid, digest, body = row[12:]
    return Target(
        server_id=row[0],
        server_uid=server_uid,
        server_name=row[2],
        enabled=bool(row[3]),
        archived=bool(row[4]),
        connect_seconds=row[5],
        session_id=row[6],
        session_uid=_uid(row[7]),
        desired=row[8],
        epoch=row[9],
        identity_id=row[10],
        identity_name=row[11],
        owner_id=owner_id,
        owner_uid=None if owner_uid is None else _uid(owner_uid),
        tool_name=tool,
        digest=digest,
        body=body,
    )


def _uid(value: Any) -> UUID:
    """SQLite keeps 32 digits, PostgreSQL hands out the type itself."""
    return value if isinstance(value, UUID) else UUID(value)

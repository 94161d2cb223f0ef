"""The target of a call: a server that accepts calls, the session of the caller's identity, and the definition as last
listed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError

from servers import access, permissions
from servers.audit.record import Actor, ServerRef
from servers.enums import DefinitionKind, IdentityKind, SignsInAs
from servers.models import Definition, Identity, Server
from servers.sql import database, fetch_one, tables
from sessions.calls.arguments import NotListed, Rejected
from sessions.calls.operations import Operation, check_length
from sessions.connections import commands
from sessions.models import McpSession, Worker
from sessions.models.worker import stale_before


@dataclass(frozen=True)
class Target:
    """`owner_uid` is the live worker that owns the session; without one the session has to be requested.

    `name`: the name of the tool or prompt, the URI of the resource, or the reference of a completion. `digest` and
    `body` are those of its definition, None if the server lists none.
    """

    server_id: int
    server_uid: UUID
    server_name: str
    enabled: bool
    archived: bool
    connect_seconds: int
    session_id: int
    session_uid: UUID
    paused: bool
    paused_by: str
    epoch: int
    identity_id: int
    identity_name: str
    personal: bool
    owner_id: int | None
    owner_uid: UUID | None
    name: str
    digest: str | None
    body: str | None
    #: see Definition: not empty while a breaking change waits for a person
    approved_digest: str

    @property
    def server(self) -> ServerRef:
        return ServerRef(self.server_uid, self.server_name)

    @cached_property
    def definition(self) -> Mapping[str, Any]:
        """The server's own definition. Only its top level is known to be an object."""
        body = json.loads(self.body or "{}")
        return body if isinstance(body, dict) else {}


def find_target(user: access.User, actor: Actor, server_uid: UUID, operation: Operation, name: str) -> Target:
    """One query, unless the session's row must be created first.

    Raises Http404 for a server that `user` may not see, and access.Denied (recorded) without permission to call. Raises
    Rejected for a server that accepts no calls now, or for a target that must be listed and is not.
    """
    _require_permissions(user, actor, server_uid, name)
    check_length(name)
    operation.check_target(name)
    place = operation.place(name)
    target = _read(user.pk, server_uid, name, *place)
    if target is None:
        _make_session(user, server_uid)
        target = _read(user.pk, server_uid, name, *place)
    if target is None:
        raise Rejected("The server has been deleted.")
    _require_service(target)
    if target.body is None and operation.missing:
        raise NotListed(f"{target.server_name} {operation.missing}")
    return target


def _make_session(user: access.User, server_uid: UUID) -> None:
    """The first call creates the session's row."""
    try:
        commands.session_for(user, access.server_by_uid(user, server_uid))
    except ValidationError as problem:
        raise Rejected(" ".join(problem.messages)) from problem


def _require_service(target: Target) -> None:
    if target.archived:
        raise Rejected(f"{target.server_name} is archived. Restore and enable it first.")
    if not target.enabled:
        raise Rejected(f"{target.server_name} is disabled. Enable it first.")
    if target.paused:
        by = f" by {target.paused_by}" if target.paused_by else ""
        raise Rejected(f"The connection to {target.server_name} is paused{by}. Resume it first.")


def _require_permissions(user: access.User, actor: Actor, server_uid: UUID, name: str) -> None:
    """Reads the server's row only if it is needed to refuse."""
    if not access.may(user, "view") or not access.may(user, "call_tool"):
        permissions.require(user, actor, "call_tool", access.server_by_uid(user, server_uid), subject=name)


# --- SQL: through the ORM this read costs eight times as much, on the path of every call ------------------------------
_TABLES = tables(Server, Identity, McpSession, Worker, Definition)
#: The kinds are literals in the text: as parameters, they make SQLite compile the statement again for each of their
#: values, because the partial indexes of identities depend on them. That took six times as long as the read.
_READ = """
SELECT server.id, server.uid, server.name, server.enabled, server.archived_at IS NOT NULL,
       server.connect_timeout_seconds, session.id, session.uid, session.epoch,
       session.paused, session.paused_by, identity.id, identity.name, identity.kind, worker.id, worker.uid,
       definition.digest, definition.body, definition.approved_digest
FROM {Server} server
JOIN {Identity} identity ON identity.server_id = server.id AND (
     identity.user_id = %s AND identity.kind = '{personal}' AND identity.ended_at IS NULL
     AND server.signs_in_as <> '{signs_in_shared}'
     OR identity.kind = '{shared}' AND server.signs_in_as <> '{signs_in_personal}')
LEFT JOIN {McpSession} session ON session.server_id = server.id AND session.identity_id = identity.id
LEFT JOIN {Worker} worker ON worker.id = session.owner_id AND worker.ended_at IS NULL AND worker.heartbeat_at > %s
LEFT JOIN {Definition} definition ON definition.identity_id = identity.id AND definition.kind = %s
     AND definition.key = %s AND definition.removed_at IS NULL
WHERE server.uid = %s
ORDER BY CASE WHEN identity.kind = '{personal}' THEN 0 ELSE 1 END
LIMIT 1
""".format(  # our own names and constants, no user input
    personal=IdentityKind.PERSONAL.value,
    shared=IdentityKind.SHARED.value,
    signs_in_personal=SignsInAs.PERSONAL.value,
    signs_in_shared=SignsInAs.SHARED.value,
    **_TABLES,
)


def _read(user_id: int, server_uid: UUID, name: str, kind: DefinitionKind, key: str) -> Target | None:
    """The user's own identity has priority over the shared one, even without a session: then the result is None."""
    connection = database()
    values = [
        user_id,
        connection.ops.adapt_datetimefield_value(stale_before()),
        kind.value,
        key,
        Server._meta.get_field("uid").get_db_prep_value(server_uid, connection),
    ]
    row = fetch_one(_READ, values)
    if row is None or row[6] is None:
        return None
    kind_of_identity, owner_id, owner_uid, digest, body, approved_digest = row[13:]
    return Target(
        server_id=row[0],
        server_uid=server_uid,
        server_name=row[2],
        enabled=bool(row[3]),
        archived=bool(row[4]),
        connect_seconds=row[5],
        session_id=row[6],
        session_uid=_uid(row[7]),
        epoch=row[8],
        paused=bool(row[9]),
        paused_by=row[10],
        identity_id=row[11],
        identity_name=row[12],
        personal=kind_of_identity == IdentityKind.PERSONAL,
        owner_id=owner_id,
        owner_uid=None if owner_uid is None else _uid(owner_uid),
        name=name,
        digest=digest,
        body=body,
        approved_digest=approved_digest or "",
    )


def _uid(value: Any) -> UUID:
    """SQLite returns 32 hex digits, PostgreSQL a UUID."""
    return value if isinstance(value, UUID) else UUID(value)

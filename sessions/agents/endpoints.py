"""Resolves an address and a token to a server, or a bundle of servers, as this person sees it. Each function that reads
must run in a thread."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, Final, cast

from django.db.models import Q
from django.utils import timezone

from servers import access
from servers.agents.tokens import Principal
from servers.bundles import uris
from servers.enums import IdentityKind, SignsInAs
from servers.models import Bundle, BundleMember, Identity, Server
from servers.sql import Columns, fetch_one, tables
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.models import AgentFollow, AgentSession, McpSession

#: how long the last list of a member that is down is still used: agents drop whatever is missing
GRACE: Final = timedelta(minutes=10)
INSTRUCTIONS_CHARS: Final = 8_000


class NoEndpoint(Exception):
    """The endpoint does not exist, or not for this token: a stranger cannot tell which."""


class NoSession(Exception):
    """The agent's session has ended, is unknown, or belongs to another token: it must open another one."""


@dataclass(frozen=True)
class Endpoint:
    """A server's own endpoint. `identity` filters rows of the identity that this person uses. `ready`: its session is
    open. `connected` says whether it ever was: without that, nothing is known about the server."""

    server: Server
    identity: Mapping[str, Any]
    session: McpSession | None

    @property
    def slug(self) -> str:
        return self.server.slug

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def owner(self) -> dict[str, int]:
        """The columns of a row that belongs to this endpoint."""
        return {"server_id": self.server.pk}

    @property
    def connected(self) -> bool:
        return self.session is not None and bool(self.session.revision)

    @property
    def ready(self) -> bool:
        return self.session is not None and self.session.state == SessionState.READY

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self.session.server_capabilities if self.session is not None else {}

    @property
    def instructions(self) -> str:
        return self.session.instructions if self.session is not None else ""

    @property
    def nobody(self) -> bool:
        """Whether this person needs a credential of their own there, and has none."""
        return self.identity.get("identity_id") == 0

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the hints about the server's session and lists."""
        return (f"server.{self.server.uid}",)


@dataclass(frozen=True)
class Member:
    """A server in a bundle, as this person sees it."""

    row: BundleMember
    endpoint: Endpoint

    @property
    def alias(self) -> str:
        return self.row.alias

    @property
    def uid(self) -> str:
        return str(self.endpoint.server.uid)

    @property
    def down(self) -> str:
        """Why it cannot be used; empty if it can, or if it connects on use."""
        session, server = self.endpoint.session, self.endpoint.server
        if not server.enabled:
            return "disabled"
        if self.endpoint.nobody:
            return "needs your own credential"
        if session is None or session.state == SessionState.READY:
            return ""
        if session.condition == SessionCondition.NEEDS_AUTH:
            return "needs authorization"
        if session.condition == SessionCondition.PAUSED:
            return "paused"
        return "cannot connect" if session.fault and session.desired == Desired.OPEN else ""

    @property
    def listed(self) -> bool:
        """Whether its lists count: always while it is up, and for a while after."""
        if not self.endpoint.connected or not self.endpoint.server.enabled:
            return False
        session = self.endpoint.session
        if not self.down or session is None:
            return True
        since = session.failing_since or session.state_since
        return since > timezone.now() - GRACE

    @property
    def off(self) -> str:
        """Why agents do not get its lists, which are known; empty if they do."""
        return self.down if self.endpoint.connected and not self.listed else ""

    def outward(self, uri: str) -> str:
        return uris.exposed_uri(self.alias, uri)


@dataclass(frozen=True)
class BundleEndpoint:
    """The part of a bundle that this token and this person can reach."""

    bundle: Bundle
    members: tuple[Member, ...]

    @property
    def slug(self) -> str:
        return self.bundle.slug

    @property
    def name(self) -> str:
        return self.bundle.name

    @property
    def owner(self) -> dict[str, int]:
        return {"bundle_id": self.bundle.pk}

    @property
    def connected(self) -> bool:
        """Whether every member has been connected at some time, or cannot be now."""
        return all(one.endpoint.connected or one.down for one in self.members)

    @property
    def ready(self) -> bool:
        return all(one.endpoint.ready for one in self.members)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """Every offered capability that at least one member has."""
        found: dict[str, Any] = {}
        for one in self.members:
            theirs = one.endpoint.capabilities
            for name, patterns in (
                ("tools", one.row.tools),
                ("resources", one.row.resources),
                ("prompts", one.row.prompts),
            ):
                if patterns and isinstance(given := theirs.get(name), dict):
                    found[name] = {**found.get(name, {}), **{key: True for key in given if given[key] is True}}
            found |= {name: {} for name in ("completions", "logging") if isinstance(theirs.get(name), dict)}
        return found

    @property
    def instructions(self) -> str:
        """Its own, then those of its members, in equal shares of what is left. Members whose tools agents do not get
        are left out."""
        own = self.bundle.instructions.strip()
        theirs = [one for one in self.members if one.endpoint.instructions and not one.off]
        parts = [own] if own else []
        for one in theirs:
            head = f"# {one.endpoint.name} (names that begin with {one.alias}__)"
            share = max(0, (INSTRUCTIONS_CHARS - len(own)) // len(theirs) - len(head) - 3)
            parts.append(f"{head}\n{one.endpoint.instructions[:share]}")
        return "\n\n".join(parts)

    @property
    def topics(self) -> tuple[str, ...]:
        return (f"bundle.{self.bundle.uid}", *(topic for one in self.members for topic in one.endpoint.topics))

    def member(self, server_uid: str) -> Member | None:
        return next((one for one in self.members if one.uid == server_uid), None)


@dataclass(frozen=True)
class Entry:
    """The agent and the endpoint of a request. `session` is None for a modern request and for the opening of a session.
    `follows`: whether the session follows resources. `bundle`: the bundle through which the request came to `place`."""

    principal: Principal
    place: Endpoint | BundleEndpoint
    session: AgentSession | None = None
    follows: bool = False
    bundle: Bundle | None = None

    def at(self, member: Member) -> "Entry":
        """The same request at a member of its bundle."""
        return replace(
            self, place=member.endpoint, bundle=self.place.bundle if isinstance(self.place, BundleEndpoint) else None
        )

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of one server. Requests to a bundle are routed to a member before anything uses this."""
        if not isinstance(self.place, Endpoint):
            raise TypeError("a request to a bundle has not been routed to a member")
        return self.place


def endpoint_of(principal: Principal, slug: str) -> Endpoint | BundleEndpoint:
    """Raises NoEndpoint."""
    if "\0" in slug:  # no text of a database holds it
        raise NoEndpoint
    found = _of_slug(principal.user, slug) if access.may(principal.user, "view") else None
    if found is None:
        return _bundle_of(principal, slug)
    if not principal.reaches(found.server.pk):
        raise NoEndpoint
    return found


def _of_slug(user: Any, slug: str) -> Endpoint | None:
    """One query for a server that has only its shared identity."""
    row = fetch_one(_SERVER, [slug])
    if row is None:
        return None
    server = cast("Server", _SERVER_COLUMNS.read(row[: _SERVER_COLUMNS.count]))
    if server.signs_in_as != SignsInAs.SHARED:
        return of_server(user, server)
    return Endpoint(server, server.identity_filter, _SESSION_COLUMNS.read(row[_SERVER_COLUMNS.count :]))


def of_server(user: Any, server: Server) -> Endpoint:
    identity = access.with_identity_of(user, server).identity_filter
    return Endpoint(server, identity, McpSession.objects.filter(server=server, **identity).first())


def _bundle_of(principal: Principal, slug: str) -> BundleEndpoint:
    """Leaves out what the token or the person cannot reach."""
    if not access.may(principal.user, "view"):
        raise NoEndpoint
    bundle = Bundle.objects.filter(slug=slug, deleted_at=None).first()
    if bundle is None:
        raise NoEndpoint
    rows = bundle.members.filter(retired_at=None, server__archived_at=None).select_related("server")
    reached = [row for row in rows.order_by("position", "pk") if principal.reaches(row.server_id)]
    if not reached:
        raise NoEndpoint
    return BundleEndpoint(bundle, tuple(members_of(principal.user, reached)))


def members_of(user: Any, rows: list[BundleMember]) -> list[Member]:
    """One query for their sessions, and one for the person's own identities."""
    access.seen_by_each(user, [row.server for row in rows])
    identities = {row.server_id: row.server.identity_filter for row in rows}
    if not identities:
        return []
    mine = reduce(or_, (Q(server_id=server_id, **identity) for server_id, identity in identities.items()))
    sessions = {session.server_id: session for session in McpSession.objects.filter(mine)}
    return [Member(row, Endpoint(row.server, identities[row.server_id], sessions.get(row.server_id))) for row in rows]


def entry_of(principal: Principal, slug: str, session_key: str) -> Entry:
    """`session_key` empty: without a session. Raises NoEndpoint and NoSession."""
    place = endpoint_of(principal, slug)
    if not session_key:
        return Entry(principal, place)
    if "\0" in session_key:
        raise NoSession
    ((column, pk),) = place.owner.items()
    row = fetch_one(_AGENT_SESSION.format(column), [session_key, principal.token.pk, pk])
    if row is None:
        raise NoSession
    return Entry(principal, place, _AGENT_COLUMNS.read(row[:-1]), bool(row[-1]))


# --- SQL: with the ORM this is a fifth of what a call costs in this process --------------------------------------------
_TABLES: Final = tables(AgentFollow, AgentSession, Identity, McpSession, Server)
_SERVER_COLUMNS, _SESSION_COLUMNS = Columns(Server, "server"), Columns(McpSession, "session")
_AGENT_COLUMNS: Final = Columns(AgentSession, "agent")
_SERVER: Final = """
SELECT {server}, {session} FROM {Server} server
LEFT JOIN {Identity} identity ON identity.server_id = server.id AND identity.kind = '{shared}' AND server.signs_in_as = '{as_shared}'
LEFT JOIN {McpSession} session ON session.server_id = server.id AND session.identity_id = identity.id
WHERE server.slug = %s AND server.archived_at IS NULL
""".format(  # the kind stands in the text: see sessions.calls.targets
    server=_SERVER_COLUMNS.sql,
    session=_SESSION_COLUMNS.sql,
    shared=IdentityKind.SHARED.value,
    as_shared=SignsInAs.SHARED.value,
    **_TABLES,
)
_AGENT_SESSION: Final = """
SELECT {columns}, EXISTS (SELECT 1 FROM {AgentFollow} follow WHERE follow.session_id = agent.id)
FROM {AgentSession} agent
WHERE agent.key = %s AND agent.token_id = %s AND agent.{{}} = %s AND agent.ended_at IS NULL
""".format(columns=_AGENT_COLUMNS.sql, **_TABLES)  # noqa: S608  # names of our own models

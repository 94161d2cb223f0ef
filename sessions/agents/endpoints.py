"""From an address and a token to what stands behind them: a server as this person sees it. Each read is for a thread."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef

from servers import access
from servers.agents.tokens import Principal
from servers.models import Server
from sessions.enums import SessionState
from sessions.models import AgentFollow, AgentSession, McpSession


class NoEndpoint(Exception):
    """There is none, or not for this token: a stranger cannot tell which."""


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
    def topic(self) -> str:
        """Of the hints that concern the server's session and lists."""
        return f"server.{self.server.uid}"


@dataclass(frozen=True)
class Entry:
    """Who came in, and where. `session` is None for a modern request and for the opening of a session. `follows`: whether
    the session follows resources."""

    principal: Principal
    endpoint: Endpoint
    session: AgentSession | None = None
    follows: bool = False


def endpoint_of(principal: Principal, slug: str) -> Endpoint:
    """Raises NoEndpoint."""
    server = access.visible_servers(principal.user).filter(slug=slug, archived_at=None).first()
    if server is None or not principal.reaches(server.pk):
        raise NoEndpoint
    identity = access.seen_by(principal.user, server).identity_filter
    return Endpoint(server, identity, McpSession.objects.filter(server=server, **identity).first())


def entry_of(principal: Principal, slug: str, session_key: str) -> Entry:
    """`session_key` empty: without a session. Raises NoEndpoint and NoSession."""
    endpoint = endpoint_of(principal, slug)
    if not session_key:
        return Entry(principal, endpoint)
    rows = AgentSession.objects.filter(
        key=session_key, token_id=principal.token.pk, server_id=endpoint.server.pk, ended_at=None
    )
    mine = AgentFollow.objects.filter(session_id=OuterRef("pk"))
    session = rows.annotate(follows_any=Exists(mine)).first()
    if session is None:
        raise NoSession
    return Entry(principal, endpoint, session, session.follows_any)

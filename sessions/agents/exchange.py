"""One request of an agent, in either era: what the rest of the endpoint needs to know about it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from servers.enums import ActionSource
from sessions.agents import agent_sessions
from sessions.agents.connection import Connection
from sessions.agents.endpoints import Entry
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.jsonrpc import Request, RequestId
from sessions.mcp.core.versions import Era
from sessions.mcp.server import posted
from sessions.mcp.server.modern import ModernRequest
from sessions.mcp.server.refusals import NOT_SENT, Refusal, later
from sessions.models import AgentSession


@dataclass(frozen=True)
class BundleRoute:
    """The bundle through which a request reached a member. `shown`: the name of its target in the bundle. `outward`:
    translates a URI of the member to its URI in the bundle. `hidden`: parameters of the tool that the bundle hides."""

    bundle: str
    shown: str
    outward: Callable[[str], str]
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Exchange:
    """`headers`: names in lower case. `capabilities`: what the agent declared, for this request or for its session.
    `log_level`: the lowest level of log messages that the agent wants for its call; empty: none."""

    entry: Entry
    era: Era
    revision: str
    id: RequestId
    method: str
    params: dict[str, Any]
    headers: Mapping[str, str] = field(repr=False)
    address: str
    request_id: str
    program: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    progress_token: RequestId | None = None
    log_level: str = ""
    via: BundleRoute | None = None

    def named(self, target: str) -> str:
        """The tool, prompt or resource of this request under the name that the agent uses."""
        return self.via.shown if self.via is not None else target

    @property
    def session(self) -> AgentSession | None:
        return self.entry.session

    @property
    def actor(self) -> Actor:
        """The token's owner, whom the audit log records as the actor. The event of the call says which agent it was."""
        return Actor.of_user(self.entry.principal.user, self.address, self.request_id, ActionSource.AGENT)


def modern_exchange(entry: Entry, connection: Connection, request: ModernRequest) -> Exchange:
    return Exchange(
        entry=entry,
        era=Era.MODERN,
        revision=request.revision,
        id=request.id,
        method=request.method,
        params=request.params,
        headers=connection.headers,
        address=connection.address,
        request_id=connection.request_id,
        program=agent_sessions.program_of(request.client),
        capabilities=request.capabilities,
        progress_token=request.progress_token,
        log_level=request.log_level or "",
    )


def legacy_exchange(entry: Entry, session: AgentSession, connection: Connection, request: Request) -> Exchange:
    return Exchange(
        entry=entry,
        era=Era.LEGACY,
        revision=session.revision,
        id=request.id,
        method=request.method,
        params=request.params,
        headers=connection.headers,
        address=connection.address,
        request_id=connection.request_id,
        program=session.program,
        capabilities=session.capabilities,
        progress_token=posted.progress_token(request.params),
        log_level=session.log_level,
    )


@contextmanager
def identified(exchange: Exchange) -> Iterator[None]:
    """Attach this request's id to any refusal raised inside, and turn an unwritable audit log into a refusal."""
    try:
        yield
    except Refusal as refusal:
        if refusal.id is None:
            refusal.of(exchange.id)
        raise
    except AuditUnavailable as problem:
        raise unavailable(problem).of(exchange.id) from problem


def unavailable(problem: AuditUnavailable) -> Refusal:
    """The refusal for an unwritable audit log. If nothing was done, the agent may repeat the request."""
    if not problem.unchanged:
        return Refusal(503, jsonrpc.INTERNAL_ERROR, str(problem), {"reason": "audit", "retrySafe": False})
    return later(503, NOT_SENT, str(problem), 2, {"reason": "audit", "retrySafe": True})

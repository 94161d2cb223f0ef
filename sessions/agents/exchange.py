"""One request of an agent, whatever its era: what the rest of the door needs to know of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from servers.audit.record import Actor
from servers.enums import Way
from sessions.agents.endpoints import Entry
from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.core.versions import Era
from sessions.models import AgentSession


@dataclass(frozen=True)
class Exchange:
    """`headers`: names in lower case. `capabilities`: what the agent declared, for this request or for its session.
    `log_level`: of the lines of its call that it wants; empty: none."""

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

    @property
    def session(self) -> AgentSession | None:
        return self.entry.session

    @property
    def actor(self) -> Actor:
        """The person, as the audit log names the one who acts. What a program did says its call's event."""
        return Actor.of_user(self.entry.principal.user, self.address, self.request_id, Way.AGENT)

"""Who is asking: the token of a request, what it allows, and the limits for agents, which count here as over MCP."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from django.db.models import Q
from ninja.security.base import AuthBase

from servers import access
from servers.agents.addresses import slug_of
from servers.agents.tokens import Principal
from servers.audit.record import Actor
from servers.enums import ActionSource, AgentScope
from servers.models import BundleMember, Server
from servers.requests import WebRequest
from servers.storable import storable
from sessions.agents.asgi import shared
from sessions.mcp.server.refusals import FORBIDDEN, Refusal

T = TypeVar("T")


@dataclass(frozen=True)
class Caller:
    """An agent with its token. The token owner's permissions are the current ones."""

    principal: Principal
    address: str
    request_id: str
    program: str = field(default="")

    @property
    def user(self) -> Any:
        return self.principal.user

    @property
    def actor(self) -> Actor:
        return Actor.of_user(self.user, self.address, self.request_id, ActionSource.AGENT)

    @property
    def only(self) -> str:
        """The server or bundle that a grant is limited to (RFC 8707); empty: as the token says."""
        return slug_of(self.principal.token.resource) if self.principal.token.resource else ""

    def require(self, *scopes: AgentScope) -> None:
        """Require any of the scopes. Raises Refusal (403)."""
        if not any(self.principal.has(scope.value) for scope in scopes):
            wanted = " or ".join(scope.value for scope in scopes)
            words = f"This token does not have the scope {wanted}. Create one with this scope on the Agents page."
            challenge = f'Bearer error="insufficient_scope", scope="{scopes[0].value}"'
            data = {"requiredScope": scopes[0].value}
            raise Refusal(403, FORBIDDEN, words, data, headers={"WWW-Authenticate": challenge})

    def reaches(self, server: Server | None) -> bool:
        """Whether the token reaches the server; None: a row of a deleted server, which only unlimited tokens reach."""
        if server is None:
            return self.principal.server_ids is None and not self.only
        if not self.principal.reaches(server.pk):
            return False
        return not self.only or self.read_servers().filter(pk=server.pk).exists()

    def servers(self) -> Any:
        """The servers that this token reaches and its owner may see. Call it in a thread."""
        rows = self._reached()
        return rows.filter(slug=self.only) if self.only else rows

    def read_servers(self) -> Any:
        """The servers whose calls and events it may read: a grant for a bundle covers its members. Runs in a thread."""
        rows = self._reached()
        if not self.only:
            return rows
        members = BundleMember.objects.filter(bundle__slug=self.only, bundle__deleted_at=None, retired_at=None)
        return rows.filter(Q(slug=self.only) | Q(pk__in=members.values("server")))

    def _reached(self) -> Any:
        rows = access.visible_servers(self.user)
        return rows if self.principal.server_ids is None else rows.filter(pk__in=self.principal.server_ids)


class Token(AuthBase):
    """`Authorization: Bearer mca_…` or `mco_…`, and nothing else: browser cookies do not count."""

    openapi_type = "http"
    openapi_scheme = "bearer"

    def __init__(self) -> None:
        super().__init__()
        self.is_async = True

    async def __call__(self, request: WebRequest) -> Caller:  # type: ignore[override]  # as the middleware leaves it
        """Raises Refusal (401, 429)."""
        admission = shared().admission
        principal = await admission.caller(request.headers.get("Authorization", ""), request.client_ip)
        await admission.admit(principal)
        program = storable(request.headers.get("User-Agent", ""), 120)
        admission.note_use(principal, request.client_ip, program)
        return Caller(principal, request.client_ip, request.request_id, program)


async def work(job: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run it in a thread that may wait for the database and the audit writer."""
    return await shared().reader.work(partial(job, *arguments, **named))


def caller_of(request: WebRequest) -> Caller:
    found: Caller = request.auth  # type: ignore[attr-defined]  # set by ninja
    return found

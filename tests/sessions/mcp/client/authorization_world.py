"""A server, its authorization server and a person in one process, which answers every request of a flow."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, Grant, Pending
from sessions.mcp.oauth.exchange import HttpRequest, HttpResponse
from sessions.mcp.oauth.urls import http_twin
from sessions.mcp.transports.authorizing import Refusal, Trial

SERVER, ISSUER = "https://mcp.example/mcp", "https://as.example"
EXPIRED = Refusal(401, ('Bearer error="invalid_token"',))


class Store:
    """A grant store in memory with the lock that all processes share. Several Authorizations may use one."""

    def __init__(self, grant: Grant | None = None) -> None:
        self.grant = grant
        self.saved: list[Grant] = []
        self._lock = asyncio.Lock()

    async def load(self) -> Grant | None:
        await asyncio.sleep(0)
        return self.grant

    async def save(self, grant: Grant) -> None:
        await asyncio.sleep(0)
        self.grant = grant
        self.saved.append(grant)

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        async with self._lock:
            yield


class World:
    """Implements Http. Issues tokens `t1`, `t2` and so on; responses in `refuse` answer token requests first."""

    def __init__(self, server: str = SERVER, issuer: str = ISSUER) -> None:
        self.server, self.issuers = server, [issuer]
        self.metadata: dict[str, Any] = {"code_challenge_methods_supported": ["S256"]}
        #: added to the server's own metadata
        self.resource: dict[str, Any] = {}
        self.asked: list[HttpRequest] = []
        self.given = self.registered = 0
        self.lifetime: float | None = 1000.0
        self.rotates = True
        self.refuse: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.registering = asyncio.Event()
        self.now = 10_000.0
        self.signed_in = 0
        self.scopes: list[str] = []

    # -- http

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        parts = urlsplit(request.url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            return said({"resource": http_twin(self.server), "authorization_servers": self.issuers, **self.resource})
        if parts.path == "/.well-known/oauth-authorization-server":
            names = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "registration_endpoint": "register",
            }
            ends = {key: f"{origin}/{value}" for key, value in names.items()}
            return said({"issuer": origin, **ends, **self.metadata})
        if parts.path == "/register":
            self.registered += 1
            self.registering.set()
            await self.gate.wait()
            return said({"client_id": f"{parts.netloc}-{self.registered}"})
        return await self._token()

    async def _token(self) -> HttpResponse:
        await self.gate.wait()
        if self.refuse:
            wrong = self.refuse.pop(0)
            if isinstance(wrong, Exception):
                raise wrong
            return said(wrong, 400)
        self.given += 1
        body: dict[str, Any] = {"access_token": f"t{self.given}", "token_type": "Bearer"}
        if self.lifetime is not None:
            body["expires_in"] = self.lifetime
        return said(body | ({"refresh_token": f"r{self.given}"} if self.rotates else {}))

    def of(self, path: str) -> list[HttpRequest]:
        return [one for one in self.asked if urlsplit(one.url).path == path]

    def token_requests(self) -> list[dict[str, str]]:
        return [dict(parse_qsl((one.body or b"").decode())) for one in self.of("/token")]

    # -- the person

    async def consent(self, pending: Pending) -> Mapping[str, str]:
        self.signed_in += 1
        self.scopes.append(dict(parse_qsl(urlsplit(pending.url).query)).get("scope", ""))
        return {"state": pending.state, "code": f"code{self.signed_in}"}

    def authorization(self, store: Store, *, person: bool = True, **settings: Any) -> Authorization:
        wanted = AuthorizationSettings(self.server, **{"redirect_uri": "https://hub.example/back", **settings})
        consent = self.consent if person else None
        return Authorization(wanted, store, self, consent=consent, clock=lambda: self.now)


def said(body: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, {}, json.dumps(body).encode())


async def token(trial: Trial) -> str:
    return (await trial.headers("POST", SERVER)).get("Authorization", "")


async def signed_in(world: World, store: Store, **settings: Any) -> Authorization:
    """An Authorization with the token t1."""
    authorization = world.authorization(store, **settings)
    trial = authorization.trial("tools/list")
    assert await token(trial) == ""
    assert await trial.refused(Refusal(401))
    assert await token(trial) == "Bearer t1"
    return authorization

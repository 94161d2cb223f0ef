"""How the driver signs in: a store in memory, and a person who consents to everything."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx

from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, Grant, IdentityProvider, Pending
from sessions.mcp.core.errors import Fault
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.egress import OutboundPolicy

#: nothing listens here: the person reads the redirect instead of following it
REDIRECT: Final = "http://localhost:3000/callback"
#: the URL of our metadata document that the suite knows
DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
#: scenarios in which a correct client refuses to continue, and the faults it reports
EXPECTED: Final[dict[str, tuple[Fault, ...]]] = {
    "auth/scope-retry-limit": (Fault.FORBIDDEN,),
    "auth/resource-mismatch": (Fault.AUTHORIZATION_FAILED,),
    "auth/iss-supported-missing": (Fault.AUTHORIZATION_FAILED,),
    "auth/iss-wrong-issuer": (Fault.AUTHORIZATION_FAILED,),
    "auth/iss-unexpected": (Fault.AUTHORIZATION_FAILED,),
    "auth/iss-normalized": (Fault.AUTHORIZATION_FAILED,),
    "auth/metadata-issuer-mismatch": (Fault.AUTHORIZATION_FAILED,),
}


class MemoryStore:
    def __init__(self) -> None:
        self.grant: Grant | None = None

    async def load(self) -> Grant | None:
        return self.grant

    async def save(self, grant: Grant) -> None:
        self.grant = grant

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        yield


async def person(pending: Pending) -> Mapping[str, str]:
    """Open the page and read its redirect: the test server does not ask for consent."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        page = await browser.get(pending.url)
    return dict(parse_qsl(urlsplit(page.headers["location"]).query, keep_blank_values=True))


def settings(scenario: str, url: str, given: Mapping[str, Any]) -> AuthorizationSettings:
    common: dict[str, Any] = {
        "server_url": url,
        "redirect_uri": REDIRECT,
        "metadata_document": DOCUMENT,
        "client_id": given.get("client_id", ""),
        "client_secret": given.get("client_secret", ""),
    }
    name = scenario.removeprefix("auth/")
    if name == "client-credentials-jwt":
        key = {"private_key": given["private_key_pem"], "algorithm": given.get("signing_algorithm", "ES256")}
        return AuthorizationSettings(**common, **key, flow="client_credentials")
    if name == "client-credentials-basic":
        return AuthorizationSettings(**common, flow="client_credentials")
    if name == "wif-jwt-bearer":
        return AuthorizationSettings(**common, flow="workload", workload_token=always(given["valid_jwt"]))
    if name == "enterprise-managed-authorization":
        provider = IdentityProvider(given["idp_token_endpoint"], given["idp_client_id"], always(given["idp_id_token"]))
        return AuthorizationSettings(**common, flow="enterprise", identity_provider=provider)
    return AuthorizationSettings(**common)


def always(token: str) -> Any:
    async def source() -> str:
        return token

    return source


def authorization(scenario: str, url: str, policy: OutboundPolicy, given: Mapping[str, Any]) -> Authorization | None:
    if not scenario.startswith("auth/"):
        return None
    wanted = settings(scenario, url, given)
    return Authorization(wanted, MemoryStore(), AuthorizationHttp(policy), consent=person)

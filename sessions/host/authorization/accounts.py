"""Tokens without a person: service accounts, workload identities, enterprise-managed authorization."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from django.utils import timezone

from servers.credentials import references, service_account, vault
from servers.credentials.issuers import Expected
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind
from servers.secret import Secret
from servers.storable import storable
from sessions.connections import client_document
from sessions.host.answer_redaction import Redactor
from sessions.host.authorization.known_tokens import KnownTokens
from sessions.host.db import Database
from sessions.host.launch import Launch
from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, Grant, IdentityProvider
from sessions.mcp.core.errors import AuthorizationError, McpError
from sessions.mcp.oauth.challenges import Demand
from sessions.mcp.oauth.settings import ExpectedIssuer, Flow
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.dialing import as_sent
from sessions.mcp.transports.registry import HttpSpec, WebSocketSpec

_FAULT_CHARS = 300
_FLOWS: dict[CredentialKind, Flow] = {
    CredentialKind.SERVICE_ACCOUNT: "client_credentials",
    CredentialKind.WORKLOAD: "workload",
    CredentialKind.ENTERPRISE: "enterprise",
}


class MemoryStore:
    """The tokens of one session, kept in memory while it lives. Calls `on_token` for each new access token."""

    def __init__(self, redactor: Redactor, on_token: Callable[[], None]) -> None:
        self._on_token = on_token
        self._known, self._lock = KnownTokens(redactor), asyncio.Lock()
        self._grant: Grant | None = None

    async def load(self) -> Grant | None:
        return self._grant

    async def save(self, grant: Grant) -> None:
        self._known.learn(grant)
        if grant.signed_in and (self._grant is None or grant.access_token != self._grant.access_token):
            self._on_token()
        self._grant = grant

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        async with self._lock:
            yield


class TokenOutcome:
    """Records on the credentials board whether the credential works. Never waits."""

    def __init__(self, db: Database, row: tuple[int, int], redactor: Redactor) -> None:
        self._db, self._row, self._redactor = db, row, redactor

    def __call__(self, fault: str = "") -> None:
        words = storable(self._redactor.text(fault), _FAULT_CHARS)
        self._db.post(partial(vault.token_had, *self._row, timezone.now(), words))


class AccountAuthorization(Authorization):
    """Records why no token could be obtained."""

    def report_to(self, report: TokenOutcome) -> "AccountAuthorization":
        self._report = report
        return self

    async def renewed(self, sent: int) -> bool:
        try:
            return await super().renewed(sent)
        except McpError as error:
            self._report(error.detail)
            raise

    async def authorized(self, sent: int, demand: Demand) -> bool:
        try:
            return await super().authorized(sent, demand)
        except McpError as error:
            self._report(error.detail)
            raise


class ReferredToken:
    """A token signed by another party. Read each time it is needed, because no event reports its renewal."""

    def __init__(self, text: str, redactor: Redactor) -> None:
        self._text, self._known = text, KnownTokens(redactor)

    async def __call__(self) -> str:
        try:
            # the launch refused a reference that is not granted
            found = await asyncio.to_thread(references.resolve, self._text, references.names(self._text))
        except references.ReferenceMissing as missing:
            raise AuthorizationError(str(missing)) from None
        self._known.learn_values(found.secrets)
        return found.text

    def learn_assertion(self, made_of_it: str) -> None:
        self._known.learn_values([Secret(made_of_it)])


def account_authorization(
    launch: Launch, spec: HttpSpec | WebSocketSpec, account: Parts, db: Database, redactor: Redactor
) -> Authorization:
    """Each session gets its own tokens. They are not stored: only the account can renew them."""
    outcome = TokenOutcome(db, launch.account_row, redactor)
    settings = replace(_settings(spec.url, account, launch.expected), **_given(account, redactor))
    http = http_for(launch, spec, settings)
    made = AccountAuthorization(settings, MemoryStore(redactor, outcome), http)
    return made.report_to(outcome)


def http_for(launch: Launch, spec: HttpSpec | WebSocketSpec, settings: AuthorizationSettings) -> AuthorizationHttp:
    """The HTTP client that a session uses for requests about its tokens."""
    return AuthorizationHttp(
        spec.policy,
        spec.tls,
        server_url=settings.server_url,
        entered=settings.entered,
        elsewhere=launch.tls_elsewhere,
        recorder=spec.recorder,
    )


def _settings(url: str, account: Parts, allowed: Expected | None) -> AuthorizationSettings:
    key, expected, issuer = account.secret("key"), expected_issuer(allowed), account.details["issuer"]
    return AuthorizationSettings(
        server_url=as_sent(url),
        flow=_FLOWS[account.kind],
        client_name=client_document.name(),
        client_id=account.details["client"],
        client_secret=account.secret("secret"),
        client_issuer=expected.issuer if expected is not None and expected.named == issuer else issuer,
        issuer=issuer,
        expected=expected,
        private_key=key,
        algorithm=service_account.algorithm(key) if key else "",
        scopes=tuple(account.details.get("scopes", "").split()),
    )


def _given(account: Parts, redactor: Redactor) -> dict[str, Any]:
    """The settings for a token that another party signed."""
    if not account.kind.by_reference:
        return {}
    token, details = ReferredToken(account.details["token"], redactor), account.details
    if account.kind == CredentialKind.WORKLOAD:
        return {"workload_token": token}
    place, client = details["provider"], details["provider_client"]
    provider = IdentityProvider(place, client, token, account.secret("provider_secret"), token.learn_assertion)
    return {"identity_provider": provider}


def expected_issuer(given: Expected | None) -> ExpectedIssuer | None:
    return None if given is None else ExpectedIssuer(given.named, given.issuer)

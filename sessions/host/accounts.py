"""Who gets tokens without a person: service accounts, workload identities, enterprise-managed authorization."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from django.utils import timezone

from servers.domain import credentials, references, service_account
from servers.domain.credential_parts import Parts
from servers.domain.issuers import Expected
from servers.enums import CredentialKind
from servers.secret import Secret
from sessions.client.authorization import Authorization, AuthorizationSettings, Grant, IdentityProvider
from sessions.domain import client_document
from sessions.domain.lifecycle import storable
from sessions.host.db import Database
from sessions.host.known_tokens import Known
from sessions.host.launch import Launch
from sessions.host.redaction import Redactor
from sessions.protocol.errors import AuthorizationError, McpError
from sessions.protocol.oauth.challenges import Demand
from sessions.protocol.oauth.settings import ExpectedIssuer, Flow
from sessions.transports.authorization_http import AuthorizationHttp
from sessions.transports.registry import HttpSpec, WebSocketSpec

_FAULT_CHARS = 300
_FLOWS: dict[CredentialKind, Flow] = {
    CredentialKind.SERVICE_ACCOUNT: "client_credentials",
    CredentialKind.WORKLOAD: "workload",
    CredentialKind.ENTERPRISE: "enterprise",
}


class MemoryStore:
    """The tokens that one session got, as long as it lives; `told` hears of each new one."""

    def __init__(self, redactor: Redactor, told: Callable[[], None]) -> None:
        self._told = told
        self._known, self._lock = Known(redactor), asyncio.Lock()
        self._grant: Grant | None = None

    async def load(self) -> Grant | None:
        return self._grant

    async def save(self, grant: Grant) -> None:
        self._known.learn(grant)
        if grant.signed_in and (self._grant is None or grant.access_token != self._grant.access_token):
            self._told()
        self._grant = grant

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        async with self._lock:
            yield


class Told:
    """How the credential fares, for the board of credentials. Never waits: it is worth a line there."""

    def __init__(self, db: Database, row: tuple[int, int], redactor: Redactor) -> None:
        self._db, self._row, self._redactor = db, row, redactor

    def __call__(self, fault: str = "") -> None:
        words = storable(self._redactor.text(fault), _FAULT_CHARS)
        self._db.post(partial(credentials.token_had, *self._row, timezone.now(), words))


class AccountAuthorization(Authorization):
    """Notes why there was no token."""

    def tell(self, told: Told) -> "AccountAuthorization":
        self._told = told
        return self

    async def renewed(self, sent: int) -> bool:
        try:
            return await super().renewed(sent)
        except McpError as error:
            self._told(error.detail)
            raise

    async def authorized(self, sent: int, demand: Demand) -> bool:
        try:
            return await super().authorized(sent, demand)
        except McpError as error:
            self._told(error.detail)
            raise


class ReferredToken:
    """The token that somebody else signed, read each time that one is needed: whoever renews it tells nobody."""

    def __init__(self, text: str, redactor: Redactor) -> None:
        self._text, self._known = text, Known(redactor)

    async def __call__(self) -> str:
        try:
            found = await asyncio.to_thread(references.resolve, self._text)
        except references.ReferenceMissing as missing:
            raise AuthorizationError(str(missing)) from None
        self._known.learn_values(found.secrets)
        return found.text

    def learn_assertion(self, made_of_it: str) -> None:
        self._known.learn_values([Secret(made_of_it)])


def account_authorization(
    launch: Launch, spec: HttpSpec | WebSocketSpec, account: Parts, db: Database, redactor: Redactor
) -> Authorization:
    """Its tokens are got anew by each session and are in no row: there is nothing to renew them with but the account."""
    told = Told(db, launch.account_row, redactor)
    settings = replace(_settings(spec.url, account, launch.expected), **_given(account, redactor))
    made = AccountAuthorization(settings, MemoryStore(redactor, told), AuthorizationHttp(spec.policy))
    return made.tell(told)


def _settings(url: str, account: Parts, allowed: Expected | None) -> AuthorizationSettings:
    key, expected, issuer = account.secret("key"), expected_issuer(allowed), account.details["issuer"]
    return AuthorizationSettings(
        server_url=url,
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
    """Where the token comes from that somebody else signed."""
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

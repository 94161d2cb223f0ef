"""Authorization of a session: the grant in rows, as what `sessions.client.authorization` asks for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from django.utils import timezone

from servers.crypto import SealError
from servers.domain import credentials, grants, service_account
from servers.domain.credential_parts import Parts
from servers.domain.issuers import Expected
from servers.secret import Secret
from sessions.client.authorization import Authorization, AuthorizationSettings, Grant, SignInNeeded
from sessions.domain import client_document
from sessions.domain.lifecycle import storable
from sessions.host.db import Database, DatabaseAway
from sessions.host.launch import Launch
from sessions.host.redaction import Redactor
from sessions.protocol.errors import Fault, McpError, TransportError
from sessions.protocol.oauth.challenges import Demand
from sessions.protocol.oauth.settings import ExpectedIssuer
from sessions.transports.authorization_http import AuthorizationHttp
from sessions.transports.egress import Policy
from sessions.transports.registry import HttpSpec, StdioSpec, WebSocketSpec

HOLD_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.1
#: live values of one session that the filter of the logs knows: those of the newest tokens
_KEPT = 12
_FAULT_CHARS = 300


class Known:
    """What is in the grants of one session is known to the redaction, and stays known while this lives."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known: list[Secret] = []

    def learn(self, grant: Grant) -> None:
        registered = grant.registration.secret if grant.registration else ""
        values = [grant.access_token, grant.refresh_token, registered, grant.dpop_key]
        fresh = [Secret(value) for value in values if value]
        self._known = [*self._known, *fresh][-_KEPT:]
        self._redactor.learn(fresh)


class MemoryStore:
    """The tokens of a service account, as long as its session lives; `told` hears of each new one."""

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


class RowStore:
    """The grant of one identity."""

    def __init__(self, db: Database, identity: int, redactor: Redactor) -> None:
        self._db, self._identity, self._known = db, identity, Known(redactor)

    async def load(self) -> Grant | None:
        try:
            text = await self._db.read(partial(grants.load, self._identity))
        except (DatabaseAway, SealError) as exc:
            raise _unavailable(exc) from exc
        if text is None:
            return None
        grant = Grant.from_data(json.loads(text.reveal()))
        self._known.learn(grant)
        return grant

    async def save(self, grant: Grant) -> None:
        """Waits for the database as long as it takes: the token before may be worthless already."""
        self._known.learn(grant)
        text = Secret(json.dumps(grant.to_data()))
        try:
            await self._db.persist(partial(grants.save, self._identity, text, _shown(grant)))
        except (DatabaseAway, SealError) as exc:
            raise _unavailable(exc) from exc

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """Each holder is another one, also two of the same process."""
        holder = uuid4()
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                while not await self._db.write(partial(grants.hold, self._identity, holder)):  # noqa: ASYNC110  a row
                    await asyncio.sleep(_ASK_AGAIN_SECONDS)
        except (TimeoutError, DatabaseAway) as exc:
            raise _unavailable(exc) from exc
        try:
            yield
        finally:
            self._db.post(partial(grants.let_go, holder))


class HeldAuthorization(Authorization):
    """Notes what the server named when it asked for a person, so that the sign-in begins with it."""

    def remember(self, db: Database, identity: int) -> "HeldAuthorization":
        self._note = lambda url, scopes: db.post(partial(grants.challenged, identity, url, scopes))
        return self

    async def authorized(self, sent: int, demand: Demand) -> bool:
        try:
            return await super().authorized(sent, demand)
        except SignInNeeded as needed:
            self._note(needed.metadata_url, tuple(needed.scopes))
            raise


class Told:
    """How a service account fares, for the board of credentials. Never waits: it is worth a line there."""

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


def authorized(launch: Launch, db: Database, redactor: Redactor) -> Launch:
    """`launch` with whoever gets its tokens; a local process, and a server with a header of its own, need nobody."""
    if isinstance(launch.spec, StdioSpec):
        return launch
    if any(name.lower() == "authorization" for name in launch.spec.headers()):
        return launch
    if launch.account is not None:
        told = Told(db, launch.account_row, redactor)
        account = _of_account(launch, launch.spec, launch.account, redactor, told)
        return replace(launch, spec=replace(launch.spec, authorization=account))
    if launch.identity is None:
        return launch
    store = RowStore(db, launch.identity, redactor)
    made = HeldAuthorization(
        settings_for(launch.spec.url, launch.expected), store, AuthorizationHttp(launch.spec.policy)
    )
    return replace(launch, spec=replace(launch.spec, authorization=made.remember(db, launch.identity)))


def _of_account(
    launch: Launch, spec: HttpSpec | WebSocketSpec, account: Parts, redactor: Redactor, told: Told
) -> Authorization:
    """Its tokens are got anew by each session and are in no row: there is nothing to renew them with but the account."""
    key, expected = account.secret("key"), _expected(launch.expected)
    issuer = account.details["issuer"]
    settings = AuthorizationSettings(
        server_url=spec.url,
        flow="client_credentials",
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
    made = AccountAuthorization(settings, MemoryStore(redactor, told), AuthorizationHttp(spec.policy))
    return made.tell(told)


def for_sign_in(
    url: str, identity: int, db: Database, policy: Policy, client: dict[str, Any], expected: Expected | None = None
) -> Authorization:
    """To prepare and finish a person's journey; `client`: id and secret where they were registered by hand."""
    store = RowStore(db, identity, Redactor())
    return Authorization(replace(settings_for(url, expected), **client), store, AuthorizationHttp(policy))


def settings_for(url: str, expected: Expected | None = None) -> AuthorizationSettings:
    """An instance that others reach by https serves a document that says who it is; others register where they can."""
    return AuthorizationSettings(
        server_url=url,
        redirect_uri=client_document.callback(),
        client_name=client_document.name(),
        metadata_document=client_document.address(),
        expected=_expected(expected),
    )


def _expected(given: Expected | None) -> ExpectedIssuer | None:
    return None if given is None else ExpectedIssuer(given.named, given.issuer)


def _shown(grant: Grant) -> dict[str, Any]:
    """What the pages may show of it."""
    return {
        "issuer": grant.issuer,
        "generation": grant.generation,
        "signed_in": grant.signed_in,
        "expires_at": grant.expires_at if grant.signed_in else None,
        "scopes": list(grant.scopes_granted),
        "client": grant.registration.client_id if grant.registration else "",
    }


def _unavailable(exc: Exception) -> McpError:
    words = str(exc) if isinstance(exc, SealError) else "The grant could not be read or kept in time."
    return TransportError(Fault.TIMEOUT, words, may_have_run=False)

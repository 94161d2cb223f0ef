"""The authorization of a session: the grant in the database, in the form that `sessions.mcp.client.authorization`
expects."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from servers.credentials import grants
from servers.credentials.binding import Destination
from servers.credentials.grants import GrantMissing
from servers.credentials.issuers import Expected
from servers.crypto import SealError
from servers.enums import IdentityKind
from servers.models import Server
from servers.registration.resolved_values import Certificate
from servers.secret import Secret
from servers.validators import origin
from sessions.connections import client_document
from sessions.host.answer_redaction import Redactor
from sessions.host.authorization.accounts import account_authorization, expected_issuer, http_for
from sessions.host.authorization.known_tokens import KnownTokens
from sessions.host.db import Database, DatabaseAway
from sessions.host.launch import Launch, tls_of
from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, Grant, Registration, SignInNeeded
from sessions.mcp.core.errors import AuthorizationError, Fault, McpError, TransportError
from sessions.mcp.oauth.challenges import Demand
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.dialing import as_sent
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.registry import StdioSpec

HOLD_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.1


class RowStore:
    """The grant of one identity at `place`, the address of its server when this object was created."""

    def __init__(self, db: Database, identity: int, place: Destination, redactor: Redactor) -> None:
        self._db, self._identity, self._place, self._known = db, identity, place, KnownTokens(redactor)
        self._row: int | None = None

    async def load(self) -> Grant | None:
        try:
            kept = await self._db.read(partial(grants.load, self._identity, self._place))
        except (DatabaseAway, SealError) as exc:
            raise _unavailable(exc) from exc
        self._row = None if kept is None else kept.row
        if kept is None:
            return None
        grant = Grant.from_data(json.loads(kept.text.reveal()))
        self._known.learn(grant)
        return grant

    async def save(self, grant: Grant) -> None:
        """Replace the grant that was loaded last. Waits for the database as long as it takes: the previous token may
        already be invalid."""
        self._known.learn(grant)
        text = Secret(json.dumps(grant.to_data()))
        try:
            await self._db.persist(
                partial(grants.save, self._identity, self._place, text, _shown(grant), renewed=self._row)
            )
        except GrantMissing as exc:
            raise AuthorizationError(str(exc)) from exc
        except (DatabaseAway, SealError) as exc:
            raise _unavailable(exc) from exc

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """Hold the refresh lock. Each caller is a separate holder, even within one process."""
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
            self._db.post(partial(grants.release, holder))


class HeldAuthorization(Authorization):
    """Records the challenge of a server that requires a sign-in, so that the sign-in starts with it."""

    def remember(self, db: Database, identity: int) -> "HeldAuthorization":
        self._note = lambda needed: db.post(
            partial(grants.challenged, identity, needed.metadata_url, tuple(needed.scopes), needed.scheme)
        )
        return self

    async def authorized(self, sent: int, demand: Demand) -> bool:
        try:
            return await super().authorized(sent, demand)
        except SignInNeeded as needed:
            self._note(needed)
            raise


def authorized(launch: Launch, db: Database, redactor: Redactor) -> Launch:
    """`launch` with its token source. A local process, and a server with its own Authorization header, need
    none."""
    if isinstance(launch.spec, StdioSpec):
        return launch
    if any(name.lower() == "authorization" for name in launch.spec.headers()):
        return launch
    if launch.account is not None:
        account = account_authorization(launch, launch.spec, launch.account, db, redactor)
        return replace(launch, spec=replace(launch.spec, authorization=account))
    if launch.identity is None:
        return launch
    store = RowStore(db, launch.identity, origin(launch.spec.url), redactor)
    settings = settings_for(launch.spec.url, launch.expected)
    made = HeldAuthorization(settings, store, http_for(launch, launch.spec, settings))
    return replace(launch, spec=replace(launch.spec, authorization=made.remember(db, launch.identity)))


def for_sign_in(
    url: str,
    identity: int,
    db: Database,
    policy: OutboundPolicy,
    client: dict[str, Any],
    redactor: Redactor,
    expected: Expected | None = None,
    certificate: Certificate | None = None,
) -> Authorization:
    """The authorization that prepares and finishes a person's sign-in. `client`: settings of the client, if the person
    chose one. `redactor` learns the secrets of both."""
    if client.get("client_secret"):
        redactor.learn([Secret(client["client_secret"])])
    store = RowStore(db, identity, origin(url), redactor)
    tls, elsewhere = tls_of(certificate)
    settings = replace(settings_for(url, expected), **client)
    http = AuthorizationHttp(policy, tls, server_url=settings.server_url, entered=settings.entered, elsewhere=elsewhere)
    return Authorization(settings, store, http)


async def shared_client(server: Server, db: Database, redactor: Redactor) -> Registration | None:
    """The client that was entered for the shared identity: people who sign in for themselves need not know its secret."""
    shared = await db.read(partial(server.identities.get, kind=IdentityKind.SHARED))
    grant = await RowStore(db, shared.pk, origin(server.url), redactor).load()
    known = grant.registration if grant is not None else None
    return known if known is not None and known.source == "registered_by_hand" else None


def settings_for(url: str, expected: Expected | None = None) -> AuthorizationSettings:
    """An instance reachable over https serves a client metadata document. Others, and those on a private network, use
    dynamic registration if the server supports it."""
    return AuthorizationSettings(
        server_url=as_sent(url),
        redirect_uri=client_document.callback(),
        client_name=client_document.name(),
        metadata_document=client_document.address(),
        document_last=not client_document.is_fetched(),
        expected=expected_issuer(expected),
    )


def _shown(grant: Grant) -> dict[str, Any]:
    """The parts of the grant that the pages may show."""
    return {
        "issuer": grant.issuer,
        "generation": grant.generation,
        "signed_in": grant.signed_in,
        "expires_at": grant.expires_at if grant.signed_in else None,
        "scopes": list(grant.scopes_granted),
        "client": grant.registration.client_id if grant.registration else "",
        "by_hand": grant.registration is not None and grant.registration.source == "registered_by_hand",
    }


def _unavailable(exc: Exception) -> McpError:
    words = str(exc) if isinstance(exc, SealError) else "The grant could not be read or stored in time."
    return TransportError(Fault.TIMEOUT, words, may_have_run=False)

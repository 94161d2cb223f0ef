"""The worker's part of an authorization: discovers the authorization server before it, and fetches the token after it."""

import asyncio
from functools import partial
from uuid import UUID

import structlog

from servers.credentials import authorizations, issuers
from servers.crypto import SealError
from servers.enums import AuthorizationState
from servers.models import ServerAuthorization
from servers.registration.resolved_values import NotLaunchable, certificate_of
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.authorization.stored_grants import for_sign_in, shared_client
from sessions.host.db import Database, DatabaseAway
from sessions.host.launch_problem import LaunchProblem
from sessions.host.outbound import egress_policy
from sessions.mcp.client.authorization import Authorization, Pending
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.refusals import without_words

SECONDS = 60.0
log = structlog.get_logger(__name__)


async def run(db: Database, uid: UUID) -> None:
    """Run the next step of a sign-in. Does nothing if another worker took it first."""
    try:
        row = await db.write(partial(authorizations.take, uid))
    except DatabaseAway as exc:  # the page asks again
        log.warning("host.sign_in_not_taken", sign_in=str(uid), problem=str(exc)[:200])
        return
    if row is None:
        return
    redactor = Redactor()
    try:
        async with asyncio.timeout(SECONDS):
            await _step(db, row, redactor)
    except McpError as error:
        await _failed(db, row, masked_words(error.detail, redactor))
    except (SealError, NotLaunchable, LaunchProblem) as problem:
        await _failed(db, row, str(problem))
    except TimeoutError:
        await _failed(db, row, f"The authorization server did not finish within {SECONDS:.0f} s.")
    except asyncio.CancelledError:
        db.post(partial(authorizations.failed, row, "The worker stopped. Start again."))
        raise
    except Exception as exc:  # a bug of ours: show it on the page, so the sign-in does not hang
        log.exception("host.sign_in_failed", sign_in=str(uid))
        await _failed(db, row, f"mcpadmin failed ({type(exc).__name__}). See its log for details.")


async def _step(db: Database, row: ServerAuthorization, redactor: Redactor) -> None:
    client = await db.read(partial(authorizations.opened, row, "client"))
    server = row.identity.server
    if row.identity.user_id is not None and row.state == AuthorizationState.PREPARING:
        client |= {"shared_client": await shared_client(server, db, redactor)}
    expected = await db.read(partial(issuers.expected, server))
    certificate = await db.read(partial(certificate_of, server, row.identity))
    authorization = for_sign_in(
        server.url, row.identity_id, db, egress_policy(), client, redactor, expected, certificate
    )
    await (_prepare if row.state == AuthorizationState.PREPARING else _finish)(db, row, authorization)


async def _prepare(db: Database, row: ServerAuthorization, authorization: Authorization) -> None:
    challenge = row.identity.challenge
    pending = await authorization.begin(
        metadata_url=challenge.get("metadata_url", ""),
        scopes=tuple(challenge.get("scopes", ())),
        scheme=challenge.get("scheme", ""),
    )
    ready = partial(authorizations.ready, row, pending.issuer, pending.state, pending.to_data(), pending.url)
    await db.write(ready)


async def _finish(db: Database, row: ServerAuthorization, authorization: Authorization) -> None:
    pending = Pending.from_data(await db.read(partial(authorizations.opened, row, "pending")))
    parameters = await db.read(partial(authorizations.opened, row, "answer"))
    await authorization.finish(pending, parameters)
    await db.persist(partial(authorizations.done, row), list)


async def _failed(db: Database, row: ServerAuthorization, words: str) -> None:
    await db.persist(partial(authorizations.failed, row, words, without_words(words)), list)

"""The worker's part of a consent: reads the metadata document of an OAuth client (MCP 2025-11-25 *Client ID Metadata
Documents*). Pages open no connections, least of all to an address from a query."""

from functools import partial
from uuid import UUID

import structlog

from servers.agents.oauth import clients
from servers.agents.oauth.clients import DOCUMENT_BYTES, BadClient
from servers.models import OAuthClient
from sessions.connections.icons import Fetched
from sessions.host.db import Database, DatabaseAway
from sessions.host.fetching import fetch

log = structlog.get_logger(__name__)


async def run(db: Database, uid: UUID) -> None:
    """Does nothing if another worker took it first. If the worker dies in the meantime, the next request does it."""
    try:
        client = await db.write(partial(clients.take, uid))
        if client is not None:
            found = await fetch(client.client_id, "application/json", DOCUMENT_BYTES)
            await db.write(partial(_keep, client, found))
    except DatabaseAway as exc:  # the page asks again
        log.warning("host.client_document_not_read", client=str(uid), problem=str(exc)[:200])


def _keep(client: OAuthClient, found: Fetched) -> None:
    try:
        if found.problem:
            raise BadClient(found.problem)
        if len(found.data) > DOCUMENT_BYTES:
            raise BadClient(f"The document is larger than {DOCUMENT_BYTES // 1024} KiB.")
        clients.read(client, found.data)
    except BadClient as problem:
        clients.not_read(client, str(problem))

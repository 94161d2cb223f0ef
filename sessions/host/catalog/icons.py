"""Fetches the icons that a server declares for itself and its tools: guarded, bounded, without cookies or
credentials."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

import httpx
import structlog

from sessions.connections import icons
from sessions.connections.icons import ICON_BYTES, Fetched
from sessions.connections.lifecycle import Lease
from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway
from sessions.host.launch import egress_policy
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.limits import Limits
from sessions.mcp.transports.base import translated
from sessions.mcp.transports.engine import engine, shared_tls

AT_ONCE: Final = 2
SECONDS: Final = 10.0
log = structlog.get_logger(__name__)


class Icons:
    def __init__(self, db: Database, lease: Lease) -> None:
        self._db, self._lease = db, lease
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """The server may have declared other icons, or the stored ones may be outdated."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="fetch icons")

    async def close(self) -> None:
        await cancel_all(self._task)

    async def _look(self) -> None:
        with suppress(DatabaseAway):  # the next read of the lists tries again
            sources = await self._db.read(partial(icons.due, self._lease))
            if not sources:
                return
            slots = asyncio.Semaphore(AT_ONCE)
            found = await asyncio.gather(*(_one(src, slots) for src in sources))
            await self._db.write(partial(icons.store, self._lease, dict(zip(sources, found, strict=True))))
            log.debug("host.icons_fetched", session=str(self._lease.session_uid), count=len(sources))


async def _one(src: str, slots: asyncio.Semaphore) -> Fetched:
    inline = icons.inline(src)
    if inline is not None:
        return inline
    async with slots:
        return await fetch(src)


async def fetch(url: str) -> Fetched:
    """One GET of an https URL through the outbound guard. Redirects are not followed."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _get(url)
    except TimeoutError:
        return Fetched(problem=f"It did not arrive within {SECONDS:g} s.")
    except McpError as error:
        return Fetched(problem=error.detail)
    except (httpx.InvalidURL, ValueError):
        return Fetched(problem="Its address is not a URL.")


async def _get(url: str) -> Fetched:
    getting = engine(egress_policy(), Limits(http_connections=1), shared_tls(), timeout=SECONDS)
    try:
        with translated():
            request = httpx.Request("GET", url, headers={"Accept": "image/png, image/jpeg, image/webp, image/gif"})
            response = await getting.handle_async_request(request)
        try:
            if response.status_code != 200:
                return Fetched(problem=f"Its address answered with HTTP {response.status_code}.")
            return Fetched(await _body(response))
        finally:
            with suppress(McpError), translated():
                await response.aclose()
    finally:
        await getting.aclose()


async def _body(response: httpx.Response) -> bytes:
    """Reads at most one byte more than an icon may have."""
    data = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
    with translated():
        async for chunk in response.stream:
            data += chunk
            if len(data) > ICON_BYTES:
                break
    return bytes(data[: ICON_BYTES + 1])

"""Sends the messages of subscriptions to their webhooks. Connections are guarded like every outbound one, and never
delay a session.

The rows say what is due. The host looks at each tick, and after storing a new version of a resource.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Final

import httpx
from django.utils import timezone

from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway
from sessions.host.launch import egress_policy
from sessions.mcp.core.errors import AddressRefused, McpError
from sessions.mcp.core.limits import KIB, Limits
from sessions.mcp.transports.base import translated
from sessions.mcp.transports.engine import engine, shared_tls
from sessions.subscriptions import webhooks
from sessions.subscriptions.webhooks import Attempted, Claimed

AT_ONCE: Final = 8
SECONDS: Final = 10.0
#: of a response; the rest is not read
BODY_BYTES: Final = 64 * KIB
_REDIRECTED: Final = "The webhook answered with a redirect (HTTP {}). Redirects are not followed: enter the final URL."
_ANSWERED: Final = "The webhook answered with HTTP {}."
_GUARDED: Final = "The outbound guard blocks the webhook's address. An operator can allow its network."
_SLOW: Final = f"The webhook did not answer within {SECONDS:g} s."


class Webhooks:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._closed = False

    def look(self) -> None:
        """Something may be due."""
        self._again = True
        if not self._closed and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="look for webhooks")

    async def close(self) -> None:
        """Abort the running attempts. They are repeated when their lease expires."""
        self._closed = True
        await cancel_all(*self._sending.values(), self._looking)

    async def _look(self) -> None:
        try:
            while self._again and not self._closed:
                self._again = False
                for pk in await self._db.read(webhooks.due):
                    self._send_soon(pk)
        except DatabaseAway:
            pass  # the next tick looks again
        finally:
            self._looking = None

    def _send_soon(self, pk: int) -> None:
        if pk not in self._sending:
            task = self._sending[pk] = asyncio.create_task(self._send(pk), name="send webhook")
            task.add_done_callback(lambda _: self._sending.pop(pk, None))

    async def _send(self, pk: int) -> None:
        async with self._slots:
            with suppress(DatabaseAway):
                claimed = await self._db.write(partial(webhooks.claim, pk))
                if claimed is not None:
                    outcome = await attempt(claimed)
                    await self._db.persist(partial(webhooks.attempted, claimed, outcome), list)


async def attempt(claimed: Claimed) -> Attempted:
    """One POST, from connecting to the status of the response."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            status = await _post(claimed)
    except TimeoutError:
        return Attempted(None, _SLOW)
    except AddressRefused:
        return Attempted(None, _GUARDED)
    except McpError as error:
        return Attempted(None, error.detail)
    took = f" It took {(time.monotonic() - began) * 1000:.0f} ms."
    words = _REDIRECTED if 300 <= status < 400 else _ANSWERED
    return Attempted(status, words.format(status) + took)


async def _post(claimed: Claimed) -> int:
    """Returns the status. Raises McpError, also for a refused address."""
    posting = engine(egress_policy(), Limits(http_connections=1), shared_tls(), timeout=SECONDS)
    try:
        with translated():
            request = httpx.Request("POST", claimed.url, headers=claimed.headers(timezone.now()), content=claimed.body)
            response = await posting.handle_async_request(request)
        try:
            await _read_some(response)
        finally:
            with suppress(McpError), translated():
                await response.aclose()
        return response.status_code
    finally:
        await posting.aclose()


async def _read_some(response: httpx.Response) -> None:
    """Read some of the body so that the receiver can finish cleanly. The content is not kept."""
    stream, size = response.stream, 0
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
    with suppress(McpError), translated():
        async for chunk in stream:
            size += len(chunk)
            if size >= BODY_BYTES:
                return

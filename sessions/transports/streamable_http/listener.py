"""The standalone GET stream of the legacy era: optional, so its failures are nobody's error.

Servers send there what belongs to no request of ours: list changes, resource updates, requests.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ...protocol.errors import McpError, ProtocolError
from . import answers
from .wire import Cursor, Wire, discard

#: failures in a row until the stream is left alone
_REOPENINGS: Final = 3
#: seconds after which a stream that ends did not fail: gateways cut those that are silent
_STEADY: Final = 10.0
_NO_STREAM: Final = "The server offers no stream for what it tells by itself."
_BROKEN: Final = "The stream of what the server tells by itself broke."
#: seconds that calls wait for the stream's head: a stream opened in the middle of a call can swallow its answer
_HEAD: Final = 1.0


class Listener:
    """`feed` is told why the stream is closed and whether it is opened again, and "" when it is open."""

    def __init__(
        self,
        wire: Wire,
        deliver: Callable[[bytes], None],
        broken: Callable[[McpError], None],
        feed: Callable[[str, bool], None],
    ) -> None:
        self._wire = wire
        self._deliver = deliver
        self._broken = broken
        self._feed = feed
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    async def start(self) -> None:
        self.stop()
        self._answered.clear()
        self._task = asyncio.create_task(self._run(), name="mcp GET stream")
        try:
            async with asyncio.timeout(_HEAD):
                await self._answered.wait()
        except TimeoutError:
            pass  # a slow stream is no reason to wait with calls any longer

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        loop, cursor, failures = asyncio.get_running_loop(), Cursor(), 0
        while failures < _REOPENINGS:
            cursor.moved, began = False, loop.time()
            try:
                if not await self._listen(cursor):
                    self._feed(_NO_STREAM, False)
                    return
            except ProtocolError as exc:
                self._broken(exc)
            except McpError:
                pass  # counted as a failure below; calls show a real fault of the server soon enough
            finally:
                self._answered.set()
            lasted = cursor.moved or loop.time() - began >= _STEADY
            failures = 0 if lasted else failures + 1
            if failures or not cursor.last_id:  # with an id the server makes good what was missed
                self._feed(_BROKEN, failures < _REOPENINGS)
            await asyncio.sleep(min(cursor.retry, 60.0) * 2**failures)

    async def _listen(self, cursor: Cursor) -> bool:
        """False: the server offers no such stream."""
        response = await self._wire.get(cursor.last_id)
        self._answered.set()
        try:
            if response.status_code != 200 or answers.media_type(response) != "text/event-stream":
                return response.status_code >= 500 and response.status_code != 501
            self._feed("", True)
            await self._wire.pump(response, cursor, self._deliver, _never)
            return True
        finally:
            await discard(response)


def _never() -> bool:
    return False

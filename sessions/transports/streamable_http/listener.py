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
#: seconds that calls wait for the stream's head: a stream opened in the middle of a call can swallow its answer
_HEAD: Final = 1.0


class Listener:
    def __init__(self, wire: Wire, deliver: Callable[[bytes], None], broken: Callable[[McpError], None]) -> None:
        self._wire = wire
        self._deliver = deliver
        self._broken = broken
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
        cursor, failures = Cursor(), 0
        while failures < _REOPENINGS:
            cursor.moved = False
            try:
                if not await self._listen(cursor):
                    return
            except ProtocolError as exc:
                self._broken(exc)
            except McpError:
                pass  # counted as a failure below; calls show a real fault of the server soon enough
            finally:
                self._answered.set()
            failures = 0 if cursor.moved else failures + 1
            await asyncio.sleep(min(cursor.retry, 60.0) * 2**failures)

    async def _listen(self, cursor: Cursor) -> bool:
        """False: the server offers no such stream."""
        response = await self._wire.get(cursor.last_id)
        self._answered.set()
        try:
            if response.status_code != 200 or answers.media_type(response) != "text/event-stream":
                return response.status_code >= 500 and response.status_code != 501
            await self._wire.pump(response, cursor, self._deliver, _never)
            return True
        finally:
            await discard(response)


def _never() -> bool:
    return False

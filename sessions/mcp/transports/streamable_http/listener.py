"""The standalone GET stream of the legacy era. It is optional, so its failures are not reported as errors.

Servers use it for messages that belong to none of our requests: list changes, resource updates, requests.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import httpx

from ...core.errors import McpError, ProtocolError
from . import answers
from .wire import STEADY, Cursor, Wire, discard

#: consecutive failures after which a server that never opened the stream is asked rarely, and the seconds in between
_ATTEMPTS: Final = 3
_SELDOM: Final = 300.0
#: temporary refusals, besides server errors: time-out, too early, rate limit
_FOR_THE_MOMENT: Final = frozenset({408, 425, 429})
#: maximum seconds until the next attempt, whatever a refusal asks for
_LONGEST: Final = 3600.0
#: statuses that mean that a server no longer has a stream
_NONE_ANY_MORE: Final = frozenset({405, 501})
_NO_STREAM: Final = "The server offers no stream for notifications."
_BROKEN: Final = "The server's notification stream broke."
#: seconds that calls wait for the stream's head: opening it during a call can swallow the call's answer
_HEAD: Final = 1.0


class Listener:
    """Calls `feed` with the reason when the stream closes, and whether it will be reopened; with "" when it opens."""

    def __init__(
        self,
        wire: Wire,
        deliver: Callable[[bytes, httpx.Response], None],
        broken: Callable[[McpError], None],
        feed: Callable[[str, bool], None],
    ) -> None:
        self._wire = wire
        self._deliver = deliver
        self._broken = broken
        self._feed = feed
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        #: whether the server opened the stream in this session: if so, later refusals are temporary
        self._opened = False
        #: seconds that the last refusal asked us to wait
        self._asked_pause = 0.0

    async def start(self) -> None:
        self.stop()
        self._answered.clear()
        self._task = asyncio.create_task(self._run(), name="mcp GET stream")
        try:
            async with asyncio.timeout(_HEAD):
                await self._answered.wait()
        except TimeoutError:
            pass  # a slow stream must not delay calls any longer

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        loop, cursor, failures = asyncio.get_running_loop(), Cursor(), 0
        self._opened = False
        while True:
            cursor.moved, self._asked_pause, began = False, 0.0, loop.time()
            try:
                if not await self._listen(cursor):
                    self._feed(_NO_STREAM, False)
                    return
            except ProtocolError as exc:
                self._broken(exc)
            except McpError:
                pass  # counted as a failure below; calls will reveal any real server fault
            finally:
                self._answered.set()
            lasted = cursor.moved or loop.time() - began >= STEADY
            failures = 0 if lasted else failures + 1
            if failures or not cursor.last_id:  # with an id, the server replays what was missed
                self._feed(_BROKEN, True)
            await asyncio.sleep(self._pause(cursor, failures))

    def _pause(self, cursor: Cursor, failures: int) -> float:
        seldom = _SELDOM if failures >= _ATTEMPTS and not self._opened else 0.0
        return max(cursor.pause(failures), seldom, self._asked_pause)

    async def _listen(self, cursor: Cursor) -> bool:
        """False if the server offers no such stream."""
        response = await self._wire.get(cursor.last_id)
        self._answered.set()
        try:
            if response.status_code != 200 or answers.media_type(response) != "text/event-stream":
                self._asked_pause = min(answers.retry_after(response) or 0.0, _LONGEST)
                return self._refused(response.status_code, cursor)
            self._opened = True
            self._feed("", True)
            await self._wire.pump(response, cursor, lambda data: self._deliver(data, response), _never)
            return True
        finally:
            await discard(response)

    def _refused(self, status: int, cursor: Cursor) -> bool:
        """Whether the stream may open later. A server that had one may have lost our position, or may still count the
        broken stream as open."""
        if 400 <= status < 500:
            cursor.last_id = ""
        passes = status >= (400 if self._opened else 500) or status in _FOR_THE_MOMENT
        return passes and status not in _NONE_ANY_MORE


def _never() -> bool:
    return False

"""A modern session's listen stream: opened, acknowledged, opened again when it ends.

One task for each stream, and one stream at a time: a new set is acknowledged before the stream of the old one is
given up, so that nothing falls between the two.

Source: 2026-07-28 *Subscriptions*.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Final

from ..protocol import methods
from ..protocol.backoff import Backoff
from ..protocol.errors import Fault, McpError, NotReady, ProtocolError
from ..protocol.events import Following, FollowingLost, Honoured
from ..protocol.listening import Ending, Listen, Listens, Wanted, ending, listen_params, nothing
from .pump import Ask, Pump

#: seconds that a stream must have lasted until its next loss counts as the first one again
_STEADY: Final = 60.0

Exchange = Callable[[Ask], Awaitable[Any]]


class Listening:
    """`exchange` makes one request; `seconds` is how long its acknowledgement may take."""

    def __init__(self, pump: Pump, listens: Listens, exchange: Exchange, seconds: float) -> None:
        self.pump, self._listens, self._exchange, self._seconds = pump, listens, exchange, seconds
        self._numbers = itertools.count(1)
        self._stream: _Stream | None = None
        self._next: _Stream | None = None

    async def follow(self, wanted: Wanted, refused: Mapping[str, str]) -> Honoured:
        """Listen to this set instead of the one before; not to be called twice at a time. McpError when the server
        could not be asked: the one before is then still listened to."""
        if not wanted:
            await self._replace(None)
            return Honoured(refused=refused)
        stream = self._next = _Stream(self, wanted, refused)
        try:
            honoured = await stream.acknowledged
        except BaseException:  # a cancelled wait must end the request as well
            await stream.stop()
            raise
        finally:
            self._next = None
        await self._replace(stream)
        return honoured

    async def _replace(self, stream: "_Stream | None") -> None:
        before, self._stream = self._stream, stream
        if before is not None:
            await before.stop()

    def acknowledged(self, event: Following) -> None:
        for stream in (self._stream, self._next):
            if stream is not None:
                stream.hear(event)

    def stop(self) -> None:
        for stream in (self._stream, self._next):
            if stream is not None:
                stream.task.cancel()

    async def listen(self, stream: "_Stream") -> None:
        """One listen request of a stream, from its first byte to its end."""
        stream.identity = identity = f"listen-{next(self._numbers)}"
        self._listens.add(identity, Listen(stream.wanted, stream.refused))
        try:
            await self._exchange(Ask(methods.LISTEN, listen_params(stream.wanted), self._seconds, inf, identity))
        finally:
            self._listens.remove(identity)


class _Stream:
    """One set, listened to until it is stopped. `acknowledged`: what the server agreed to, the first time."""

    def __init__(self, listening: Listening, wanted: Wanted, refused: Mapping[str, str]) -> None:
        self._listening = listening
        self.wanted, self.refused = wanted, refused
        self.identity = ""
        self._backoff = Backoff()
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self.acknowledged: asyncio.Future[Honoured] = self._loop.create_future()
        self.task = self._loop.create_task(self._run(), name="mcp listen")

    def hear(self, event: Following) -> None:
        if event.subscription != self.identity:
            return
        self._since = self._loop.time()
        self._listening.pump.lift_deadline(self.identity)
        if not self.acknowledged.done():
            self.acknowledged.set_result(event.honoured)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        try:
            while (seconds := await self._once()) is not None:  # noqa: ASYNC110  a pause between two requests
                await asyncio.sleep(seconds)
        finally:
            if not self.acknowledged.done():
                self.acknowledged.set_exception(NotReady("The session ended.", Fault.CLOSED))

    async def _once(self) -> float | None:
        """One listen request to its end: after how many seconds to make the next one, None for never."""
        self._since = None
        error: McpError | None = None
        try:
            await self._listening.listen(self)
        except McpError as exc:
            error = exc
        if self._listening.pump.over is not None:
            return None
        end = ending(error)
        if not self.acknowledged.done() and not end.refused:
            self.acknowledged.set_exception(error or _unacknowledged())
            return None
        return self._judge(end)

    def _judge(self, end: Ending) -> float | None:
        if not self.acknowledged.done():
            self.acknowledged.set_result(nothing(self.wanted, end.reason, self.refused))
        elif self._since is not None or not end.again:
            self._listening.pump.tell(FollowingLost(end.reason, retried=end.again))
        if not end.again:
            return None
        if self._since is not None and self._loop.time() - self._since >= _STEADY:
            self._backoff.reset()
        return self._backoff.delay(end.retry_after)


def _unacknowledged() -> ProtocolError:
    words = "The server answered the request for a subscription without acknowledging it."
    return ProtocolError(Fault.INVALID_RESULT, words)

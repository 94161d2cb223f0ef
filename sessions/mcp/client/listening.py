"""The listen stream of a modern session: opened, acknowledged, and reopened when it ends.

One task for each stream. A new set is acknowledged before the old stream is closed, and the old one stays open for a
moment: a notification that the server sent to it alone may arrive after that acknowledgement.

Source: 2026-07-28 *Subscriptions*.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Final

from ..core import methods
from ..core.backoff import Backoff
from ..core.errors import Fault, McpError, NotReady, ProtocolError
from ..core.events import AcceptedSubscriptions, Following, FollowingLost
from ..core.jsonrpc import RequestId
from ..core.listening import Filter, Listen, Listens, StreamEnd, listen_params, nothing, stream_end
from .pump import Pump, RequestSpec

#: seconds that a stream must last before its next loss counts as the first one again
_STEADY: Final = 60.0
#: seconds that a stream stays open after its successor was acknowledged. What arrives on both is handled twice.
_OVERLAP: Final = 2.0

Exchange = Callable[[RequestSpec], Awaitable[Any]]


class Listening:
    """`exchange` makes one request; its acknowledgement may take `seconds`."""

    def __init__(self, pump: Pump, listens: Listens, exchange: Exchange, seconds: float) -> None:
        self.pump, self._listens, self._exchange, self._seconds = pump, listens, exchange, seconds
        self._stream: _Stream | None = None
        self._next: _Stream | None = None
        self._replaced: _Stream | None = None

    async def follow(self, requested: Filter, refused: Mapping[str, str]) -> AcceptedSubscriptions:
        """Listen to this set instead of the previous one; calls must not overlap. McpError when the server could not
        be asked: the previous set then stays in force."""
        if not requested:
            await self._replace(None)
            return AcceptedSubscriptions(refused=refused)
        stream = self._next = _Stream(self, requested, refused)
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
        """All are asked to end before the first wait, so that a follow cancelled here leaves no stream running."""
        before, self._stream = self._stream, stream
        ending = [old for old in (self._replaced, before) if old is not None]
        self._replaced = before
        if before is not None and stream is not None and before.leave():
            ending.remove(before)
        for old in ending:
            old.task.cancel()
        if ending:
            await asyncio.wait([old.task for old in ending])

    def acknowledged(self, event: Following) -> None:
        for stream in (self._stream, self._next):
            if stream is not None:
                stream.on_event(event)

    def stop(self) -> None:
        for stream in (self._replaced, self._stream, self._next):
            if stream is not None:
                stream.task.cancel()

    async def listen(self, stream: "_Stream") -> None:
        """Run one listen request of a stream, from its first byte to its end."""

        def numbered(identity: RequestId) -> None:
            stream.identity = identity
            self._listens.add(identity, Listen(stream.requested, stream.refused))

        try:
            params = listen_params(stream.requested)
            await self._exchange(RequestSpec(methods.LISTEN, params, self._seconds, inf, numbered=numbered))
        finally:
            self._listens.remove(stream.identity)


class _Stream:
    """Listens to one set until stopped. `acknowledged`: what the server agreed to, the first time."""

    def __init__(self, listening: Listening, requested: Filter, refused: Mapping[str, str]) -> None:
        self._listening = listening
        self.requested, self.refused = requested, refused
        self.identity: RequestId = ""
        self._backoff = Backoff()
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._leaving = False
        self.acknowledged: asyncio.Future[AcceptedSubscriptions] = self._loop.create_future()
        self.task = self._loop.create_task(self._run(), name="mcp listen")

    def on_event(self, event: Following) -> None:
        if event.subscription != self.identity:
            return
        self._since = self._loop.time()
        self._listening.pump.lift_deadline(self.identity)
        if not self.acknowledged.done():
            self.acknowledged.set_result(event.honoured)

    def leave(self) -> bool:
        """Stop in a moment, without an event and without another request. False: it is not listening now, so there is
        nothing to wait for."""
        self._leaving = True
        if self._since is None:
            return False
        self._loop.call_later(_OVERLAP, self.task.cancel)
        return True

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
        """Run one listen request to its end. Returns the seconds until the next one; None: never."""
        error: McpError | None = None
        try:
            await self._listening.listen(self)
        except McpError as exc:
            error = exc
        if self._leaving or self._listening.pump.over is not None:
            return None
        end = stream_end(error)
        if not self.acknowledged.done() and not end.refused:
            self.acknowledged.set_exception(error or _unacknowledged())
            return None
        return self._handle_end(end)

    def _handle_end(self, end: StreamEnd) -> float | None:
        if not self.acknowledged.done():
            self.acknowledged.set_result(nothing(self.requested, end.reason, self.refused))
        elif self._since is not None or not end.again:
            self._listening.pump.emit(FollowingLost(end.reason, retried=end.again))
        if not end.again:
            return None
        if self._since is not None and self._loop.time() - self._since >= _STEADY:
            self._backoff.reset()
        self._since = None
        return self._backoff.delay(end.retry_after)


def _unacknowledged() -> ProtocolError:
    words = "The server responded to the subscription request without acknowledging it."
    return ProtocolError(Fault.INVALID_RESULT, words)

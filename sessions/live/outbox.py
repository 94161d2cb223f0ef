"""The send queue of one socket: bounded, with its own task, so that a slow browser does not delay others."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from sessions.live.limits import BUFFER_BYTES, size_of

ROOM_BYTES = BUFFER_BYTES // 4
STUCK_SECONDS = 15.0
_LOOK_AGAIN_SECONDS = 0.05


class Outbox:
    """`backlog` returns the bytes that the ASGI server still holds for this socket (0 if it cannot say)."""

    def __init__(
        self,
        send: Callable[[str], Awaitable[None]],
        backlog: Callable[[], int],
        too_slow: Callable[[], None],
    ) -> None:
        self._send, self._backlog, self._too_slow = send, backlog, too_slow
        self._queue: deque[tuple[str, int]] = deque()  # with the size in bytes
        self._bytes = 0
        self._open = True
        self._ready, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._task = asyncio.create_task(self._run())

    def put(self, text: str) -> None:
        """Never waits. A socket that leaves more than the bound unread is closed; the page then reloads its rows."""
        if not self._open:
            return
        if self._bytes + self._backlog() > BUFFER_BYTES:
            self._give_up()
            return
        size = size_of(text)
        self._queue.append((text, size))
        self._bytes += size
        self._ready.set()
        if self._bytes > ROOM_BYTES:
            self._room.clear()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def room(self) -> None:
        """Wait until a catch-up can continue without exceeding the socket's bound."""
        await self._room.wait()

    async def _run(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            while self._queue:
                await self._until_taken()
                if not self._queue:
                    return
                text, size = self._queue.popleft()
                await self._send(text)
                self._bytes -= size
                if self._bytes <= ROOM_BYTES:
                    self._room.set()

    async def _until_taken(self) -> None:
        """Wait for a slow browser. Close the socket if it takes nothing at all for a while."""
        left, since = self._backlog(), time.monotonic()
        while left > ROOM_BYTES:
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)  # ASGI has no signal for a drained socket
            now = self._backlog()
            if now < left:
                since = time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                self._give_up()
                return
            left = now

    def _give_up(self) -> None:
        self._open = False
        self._queue.clear()
        self._room.set()
        self._too_slow()

    async def close(self) -> None:
        self._open = False
        self._queue.clear()
        self._room.set()  # waiters in `room` continue; other checks show them that the socket is gone
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

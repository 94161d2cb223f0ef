"""A bounded queue for messages that no caller waits for: short replies and cancellations."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from ..core.errors import McpError
from ..core.session import Outgoing

log = logging.getLogger(__name__)

#: messages waiting to be sent, a few hundred bytes each; more are dropped
_WAITING: Final = 1024


class SideQueue:
    """`at_once` messages are sent at the same time, each within `seconds`; `dropped` is called for every lost one."""

    def __init__(
        self,
        send: Callable[[Outgoing], Awaitable[None]],
        dropped: Callable[[], None],
        *,
        at_once: int,
        seconds: float,
    ) -> None:
        self._send, self._dropped = send, dropped
        self._at_once, self._seconds = at_once, seconds
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[Outgoing] = deque()

    def add(self, outgoing: Outgoing) -> None:
        if len(self._waiting) >= _WAITING:
            self._dropped()
            return
        self._waiting.append(outgoing)
        if len(self._tasks) < self._at_once:
            task = self._loop.create_task(self._work(), name="mcp side message")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        while self._waiting:
            outgoing = self._waiting.popleft()
            try:
                async with asyncio.timeout(self._seconds):
                    await self._send(outgoing)
            except (McpError, TimeoutError) as exc:
                log.debug("a side message did not reach the server: %s", exc)

    async def flush(self, seconds: float) -> None:
        """Send the waiting messages, for up to `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def stop(self) -> None:
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()

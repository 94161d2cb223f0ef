"""Changes to a grant: one at a time, each in its own task, because cancelling a request must not lose a new token."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial

from ..core.errors import McpError


class SingleFlight:
    """Concurrent callers with the same request share one outcome, errors included."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()
        self._tasks: dict[Hashable, asyncio.Task[bool]] = {}

    async def join(self, key: Hashable, work: Callable[[], Awaitable[bool]]) -> bool:
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._alone(work), name="mcp authorization")
            task.add_done_callback(partial(self._over, key))
        try:
            return await asyncio.shield(task)
        except McpError as exc:
            raise exc.again(may_have_run=False) from exc

    async def settle(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _alone(self, work: Callable[[], Awaitable[bool]]) -> bool:
        async with self._one:
            return await work()

    def _over(self, key: Hashable, task: "asyncio.Task[bool]") -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # the waiting callers may be gone

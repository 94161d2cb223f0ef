"""Whether the other side still lives: a look after silence, and at once after a refused connection.

The look is a `ping`, and in the modern era, which has none, a `server/discover`: every server knows it and it changes
nothing there. Without it a dead connection would be noticed by the next call only.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ..protocol.errors import Fault, McpError, RpcError, TransportError
from ..protocol.memory import outdates
from ..protocol.results import Timeouts
from .pump import Pump

#: Faults of making a connection: after one the server is asked at once whether it can be reached at all.
UNREACHABLE = frozenset({Fault.CONNECTION_REFUSED, Fault.DNS_FAILED, Fault.TLS_FAILED, Fault.ADDRESS_REFUSED})


class Watch:
    """`run()` ends with the reason when the connection counts as lost. `ping` is one round trip."""

    def __init__(
        self, pump: Pump, timeouts: Timeouts, ping: Callable[[float], Awaitable[object]], *, modern: bool
    ) -> None:
        self._pump = pump
        self._timeouts = timeouts
        self._ping = ping
        self._modern = modern
        self._suspected = asyncio.Event()

    def suspect(self, error: McpError) -> None:
        """A request failed; look at once if that may mean that nothing answers any more."""
        if error.fault in UNREACHABLE or (self._modern and outdates(error)):
            self._suspected.set()

    async def run(self) -> McpError:
        misses = 0
        while True:
            suspected = await self._wait(retry=misses > 0)
            error = await self._look()
            if error is None:
                misses = 0
                continue
            misses += 1
            if error.permanent or suspected or misses >= self._timeouts.keepalive_misses:
                return self._verdict(error, misses)

    async def _wait(self, *, retry: bool) -> bool:
        """Until it is time to look; True when something made us suspicious."""
        loop = asyncio.get_running_loop()
        while not self._suspected.is_set():
            left = self._pump.heard_at + self._timeouts.keepalive_idle - loop.time()
            if retry or left <= 0:
                return False
            try:
                async with asyncio.timeout(left):
                    await self._suspected.wait()
            except TimeoutError:
                pass  # silence so far; look whether something was heard meanwhile
        self._suspected.clear()
        return True

    async def _look(self) -> McpError | None:
        """None when the server answered, with an error too."""
        try:
            await self._ping(self._timeouts.keepalive_answer)
        except RpcError as exc:
            return exc if self._modern and outdates(exc, discover=True) else None
        except McpError as exc:
            return exc
        return None

    def _verdict(self, error: McpError, misses: int) -> McpError:
        if error.fault is not Fault.TIMEOUT:
            return error
        return TransportError(
            Fault.CONNECTION_LOST,
            f"The server did not answer {misses} pings of {self._timeouts.keepalive_answer:g} s each.",
            may_have_run=True,
        )

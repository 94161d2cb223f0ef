"""Checks whether the peer is still alive: after silence, and at once after a refused connection.

The check is a `ping` or, in the modern era, which has none, a `server/discover`: every server knows it and it changes
nothing there. Without it, only the next call would notice a dead connection.

A server that works on one request at a time does not answer pings meanwhile. While it owes answers, its silence is
therefore judged by the deadlines of these requests. So is a refused ping, or one that is answered with something else,
such as a gateway's page: the answers that are owed come over other connections.

Some servers and gateways do not know `ping`: they refuse it with a plain HTTP status, or close the stream unanswered.
If such a server still answers one of its lists, it is alive, and that list is read instead from then on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ..core.errors import AuthorizationError, Fault, HttpError, McpError, ProtocolError, RpcError, TransportError
from ..core.jsonrpc import METHOD_NOT_FOUND, RequestId
from ..core.memory import outdates
from ..core.results import Timeouts
from .pump import Pump

#: Connection faults: after one, check at once whether the server can be reached.
UNREACHABLE = frozenset({Fault.CONNECTION_REFUSED, Fault.DNS_FAILED, Fault.TLS_FAILED, Fault.ADDRESS_REFUSED})
#: usually permanent, but in answer to a ping also what a firewall or gateway reports temporarily
_PASSING = frozenset({Fault.FORBIDDEN, Fault.ACCESS_REFUSED, Fault.NOT_MCP})
#: seconds without a check at most, however long a rate limit lasts
_LONGEST_PAUSE: Final = 300.0
#: seconds between two requested checks
_BETWEEN_CHECKS: Final = 2.0
RoundTrip = Callable[[float], Awaitable[object]]


class KeepAlive:
    """`run()` ends with the reason when the connection counts as lost. `ping` is one round trip, `read` another for a
    server that does not know ping (None: there is none)."""

    def __init__(
        self, pump: Pump, timeouts: Timeouts, ping: RoundTrip, read: RoundTrip | None = None, *, modern: bool
    ) -> None:
        self._pump = pump
        self._timeouts = timeouts
        self._ask, self._read = ping, read
        self._modern = modern
        self._woken = asyncio.Event()
        self._suspected = False
        #: loop time from which a check may be requested
        self._check_from = 0.0
        #: loop time of the last check after which the next one can wait
        self._checked_at = 0.0
        #: the requests that the server owed us when its present silence was noticed, and when that silence began
        self._owed: frozenset[RequestId] = frozenset()
        self._silent_since = 0.0

    def suspect(self, error: McpError) -> None:
        """A request failed; check at once if that may mean that the peer is gone."""
        if error.fault in UNREACHABLE or (self._modern and outdates(error)):
            self._suspected = True
            self._woken.set()

    def check(self) -> None:
        """Check soon, under the same rules as after silence."""
        now = asyncio.get_running_loop().time()
        if now >= self._check_from:
            self._check_from = now + _BETWEEN_CHECKS
            self._woken.set()

    async def run(self) -> McpError:
        misses, at_once = 0, False
        while True:
            suspected = await self._wait(at_once=at_once)
            error = await self._look()
            if error is None:
                misses, at_once = 0, False
                continue
            misses += 1
            refused = isinstance(error, (HttpError, AuthorizationError, ProtocolError))
            busy = (refused or error.fault is Fault.TIMEOUT) and self._is_busy()
            spared = refused and busy
            final = error.permanent and error.fault not in _PASSING
            if not spared and (final or suspected or (misses >= self._timeouts.keepalive_misses and not busy)):
                return self._verdict(error, misses)
            at_once = not refused and not busy
            self._checked_at = asyncio.get_running_loop().time()
            self._check_from = self._checked_at + self._timeouts.keepalive_idle

    def _is_busy(self) -> bool:
        """Whether the server may still work on what it owed us when it fell silent. Requests made since then do not
        count: under a steady load, a server that hangs would never be given up on."""
        owed = self._pump.owed()
        if self._pump.received_at != self._silent_since:
            self._owed, self._silent_since = owed, self._pump.received_at
        return not self._owed.isdisjoint(owed)

    async def _wait(self, *, at_once: bool) -> bool:
        """Wait until the next check is due; True when a failure triggered it early."""
        loop = asyncio.get_running_loop()
        while not self._woken.is_set():
            left = max(self._pump.received_at, self._checked_at) + self._timeouts.keepalive_idle - loop.time()
            if at_once or left <= 0:
                return False
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                pass  # silence so far; check whether a message was received meanwhile
        self._woken.clear()
        suspected, self._suspected = self._suspected, False
        return suspected

    async def _look(self) -> McpError | None:
        """None when the server is alive."""
        error = await self._asked(self._ask)
        if self._read is None or error is None or not _may_not_know_ping(error):
            return error
        if await self._asked(self._read) is not None:
            return error
        self._ask, self._read = self._read, None
        return None

    async def _asked(self, round_trip: RoundTrip) -> McpError | None:
        """None when the server answered, even with an error, unless the error may mean that the session is gone. A rate
        limit says nothing about the session."""
        try:
            await round_trip(self._timeouts.keepalive_answer)
        except RpcError as exc:
            gone = outdates(exc, discover=True) if self._modern else self._disowned(exc)
            return exc if gone else None
        except HttpError as exc:
            if exc.fault is not Fault.RATE_LIMITED:
                return exc
            pause = min(exc.retry_after or 0.0, _LONGEST_PAUSE)
            self._checked_at = asyncio.get_running_loop().time() + max(0.0, pause - self._timeouts.keepalive_idle)
        except McpError as exc:
            return exc
        return None

    def _disowned(self, error: RpcError) -> bool:
        """Whether the server refuses the ping in a wire session, in a form that `Requester.repair` does not know. A
        server without the method ping is alive."""
        status = error.http_status or 0
        refused = 400 <= status < 500 and error.code != METHOD_NOT_FOUND
        return refused and self._pump.transport.has_wire_session

    def _verdict(self, error: McpError, misses: int) -> McpError:
        if error.fault is not Fault.TIMEOUT:
            return error
        return TransportError(
            Fault.CONNECTION_LOST,
            f"The server did not answer {misses} pings of {self._timeouts.keepalive_answer:g} s each.",
            may_have_run=True,
        )


def _may_not_know_ping(error: McpError) -> bool:
    """Refused in plain HTTP, also with the 404 that means a lost session, after a new one was opened; or not answered."""
    if isinstance(error, HttpError):
        return error.fault in (Fault.HTTP_STATUS, Fault.SESSION_GONE) and (error.status < 500 or error.status == 501)
    return error.fault is Fault.NO_ANSWER

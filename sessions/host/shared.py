"""What all supervisors of one host share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sessions.host.logs.writer import LogWriter
from sessions.host.reconnect_delays import Ceilings
from sessions.host.subscriptions.notification_counts import CountWriter
from sessions.host.wire.writer import WireWriter

#: sessions that may begin to open at once: when a whole network comes back, not all servers start at the same moment
OPENING_AT_ONCE = 50
#: attempts per second of all failing sessions together: each costs four statements of the one writer thread
TRIES_A_SECOND = 25


@dataclass
class Shared:
    logs: LogWriter
    wire: WireWriter
    counts: CountWriter
    #: the longest pauses between two attempts
    ceilings: Ceilings
    #: called with the id of a session that is ready, or has room again: its waiting calls may be sent
    on_ready: Callable[[int], None]
    #: called when a subscribed resource changed: its webhook may be due
    on_change: Callable[[], None]
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OPENING_AT_ONCE))
    draining: bool = False
    drain_until: float = 0.0
    #: number of sessions that wait for their next attempt
    resting: int = 0

    def least_pause(self) -> float:
        """Lower limit, in seconds, of a session's longest pause, so that a thousand failing sessions leave room for
        calls."""
        return self.resting / TRIES_A_SECOND

    def drain(self, seconds: float) -> None:
        """From now on nothing is opened, and calls in flight have `seconds` to end."""
        self.draining = True
        self.drain_until = asyncio.get_running_loop().time() + seconds

    def drain_left(self) -> float:
        return self.drain_until - asyncio.get_running_loop().time()

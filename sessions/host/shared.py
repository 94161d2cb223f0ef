"""What all supervisors of one host share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sessions.host.log_writer import LogWriter

#: sessions that may be opening at once: when a whole network comes back, not all servers start in one moment
OPENING_AT_ONCE = 50


def _nobody() -> None:
    """Told, and does nothing."""


@dataclass
class Shared:
    logs: LogWriter
    #: seconds between two tries at most
    ceiling: float
    #: told the id of a session that is ready, or has room again: its waiting calls may go
    on_ready: Callable[[int], None]
    #: told that a subscribed resource changed: its webhook may be due
    on_change: Callable[[], None] = field(default_factory=lambda: _nobody)
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OPENING_AT_ONCE))
    draining: bool = False
    drain_until: float = 0.0

    def drain(self, seconds: float) -> None:
        """From now on nothing is opened, and calls in flight have `seconds` to end."""
        self.draining = True
        self.drain_until = asyncio.get_running_loop().time() + seconds

    def drain_left(self) -> float:
        return self.drain_until - asyncio.get_running_loop().time()

"""When to retry after a connection failed or was lost: backoff, and a breaker for servers that flap.

Most outages are restarts: in the first minutes the longest pause is short, then it doubles with each attempt up to the
ceiling of the instance. An open breaker allows one attempt per longest pause.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from sessions.connections.lifecycle import Failure
from sessions.mcp.core.backoff import Backoff, Breaker
from sessions.mcp.core.errors import HttpError, McpError

#: a session that was ready this long was healthy: the next failure counts as the first
HEALTHY_SECONDS = 60.0
#: the shortest time between two attempts, whatever the jitter
FLOOR_SECONDS = 0.1
#: more failures than `Breaker.limit` in this time open the breaker
WINDOW_SECONDS = 120.0


@dataclass(frozen=True)
class ConnectionLoss:
    """Why a connection ended without a request to close it. `clean`: the server closed it cleanly. `retry_after`:
    seconds that the server asked us to wait."""

    failure: Failure
    was_ready: bool = False
    clean: bool = False
    retry_after: float | None = None


@dataclass(frozen=True)
class Ceilings:
    """In seconds: the longest pause during `early_for` after the first failure, and the longest pause ever."""

    early: float
    early_for: float
    last: float


def ceilings() -> Ceilings:
    early_for = settings.RECONNECT_EARLY_MINUTES * 60
    return Ceilings(settings.RECONNECT_EARLY_CEILING_SECONDS, early_for, settings.RECONNECT_CEILING_SECONDS)


class Pace:
    """`breaker_open`: too many failures in a short time, so there is one attempt per longest pause. `load`: a lower
    limit in seconds for the longest pause, for a host with many sessions that fail at the same time."""

    def __init__(self, ceilings: Ceilings, load: Callable[[], float]) -> None:
        self._ceilings, self._load = ceilings, load
        self._failing_since: float | None = None
        self._longest = min(ceilings.early, ceilings.last)
        self._backoff = Backoff(first=settings.TIME_SCALE, ceiling=self._longest)
        self._breaker = Breaker(window=WINDOW_SECONDS * settings.TIME_SCALE)

    @property
    def attempt(self) -> int:
        """The number of the next attempt."""
        return self._backoff.attempts + 1

    @property
    def breaker_open(self) -> bool:
        return self._breaker.open

    def delay(self, loss: ConnectionLoss) -> float:
        """Seconds until the next attempt. Counts the failure."""
        now, first = asyncio.get_running_loop().time(), self._backoff.attempts == 0
        self._backoff.ceiling = self._longest_pause(now)
        drawn = max(FLOOR_SECONDS, self._backoff.delay(loss.retry_after))
        if self._breaker.failed(now):
            return max(drawn, self._backoff.ceiling)
        return FLOOR_SECONDS if loss.clean and first else drawn

    def _longest_pause(self, now: float) -> float:
        if self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since > self._ceilings.early_for:
            self._longest = min(2 * self._longest, self._ceilings.last)
        return min(max(self._longest, self._load()), self._ceilings.last)

    def ready_for(self, seconds: float) -> None:
        if seconds >= HEALTHY_SECONDS * settings.TIME_SCALE:
            self.reset()

    def reset(self) -> None:
        self._failing_since, self._longest = None, min(self._ceilings.early, self._ceilings.last)
        self._backoff.reset()
        self._breaker.reset()


def retry_after(error: McpError | None) -> float | None:
    return error.retry_after if isinstance(error, HttpError) else None

"""When the next try comes after a connection that failed or was lost: backoff, and a breaker for servers that flap."""

import asyncio
from dataclasses import dataclass

from django.conf import settings

from sessions.domain.lifecycle import Failure
from sessions.protocol.backoff import Backoff, Breaker
from sessions.protocol.errors import HttpError, McpError

#: a session that was ready this long was healthy: the next failure counts as the first
HEALTHY_SECONDS = 60.0
#: between two tries at least, however the jitter falls
FLOOR_SECONDS = 0.1
#: more failures than `Breaker.limit` in this time open the breaker
WINDOW_SECONDS = 120.0


@dataclass(frozen=True)
class Ending:
    """Why a connection is over that nobody ordered to be closed. `clean`: the server closed it in order;
    `retry_after`: seconds that it asked us to stay away."""

    failure: Failure
    was_ready: bool = False
    clean: bool = False
    retry_after: float | None = None


class Pace:
    """`breaker_open`: too many failures in a short time, so there is one try at each ceiling."""

    def __init__(self, ceiling: float) -> None:
        self._backoff = Backoff(first=settings.TIME_SCALE, ceiling=ceiling)
        self._breaker = Breaker(window=WINDOW_SECONDS * settings.TIME_SCALE)

    @property
    def attempt(self) -> int:
        """The number of the try that comes next."""
        return self._backoff.attempts + 1

    @property
    def breaker_open(self) -> bool:
        return self._breaker.open

    def delay(self, ending: Ending) -> float:
        """Seconds until the next try; counts the failure."""
        first = self._backoff.attempts == 0
        drawn = max(FLOOR_SECONDS, self._backoff.delay(ending.retry_after))
        if self._breaker.failed(asyncio.get_running_loop().time()):
            return max(drawn, self._backoff.ceiling)
        return FLOOR_SECONDS if ending.clean and first else drawn

    def ready_for(self, seconds: float) -> None:
        if seconds >= HEALTHY_SECONDS * settings.TIME_SCALE:
            self.reset()

    def reset(self) -> None:
        self._backoff.reset()
        self._breaker.reset()


def retry_after(error: McpError | None) -> float | None:
    return error.retry_after if isinstance(error, HttpError) else None

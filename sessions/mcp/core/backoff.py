"""Delays between retries: exponential with full jitter, a ceiling, and no limit on the number of attempts."""

import random
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Seconds. `delay()` draws from 0 to min(ceiling, first * 2^n). A server's Retry-After replaces the draw (at most
    one hour)."""

    first: float = 1.0
    ceiling: float = 60.0
    attempts: int = 0

    def delay(self, retry_after: float | None = None) -> float:
        bound = min(self.ceiling, self.first * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        if retry_after is not None:
            return min(max(retry_after, 0.0), 3_600.0)
        return random.uniform(0.0, bound)  # noqa: S311  spreading load, no secret

    def reset(self) -> None:
        """Call this after the connection was ready for 60 s."""
        self.attempts = 0


@dataclass(slots=True)
class Breaker:
    """Opens at more than `limit` failures within `window` seconds. Stays open until `reset()`."""

    limit: int = 5
    window: float = 120.0
    open: bool = False
    _failures: deque[float] = field(default_factory=deque)

    def failed(self, now: float) -> bool:
        """Count a failure and return whether the breaker is now open."""
        self._failures.append(now)
        while self._failures[0] < now - self.window:
            self._failures.popleft()
        self.open = self.open or len(self._failures) > self.limit
        if self.open:
            self._failures.clear()
        return self.open

    def reset(self) -> None:
        self.open = False
        self._failures.clear()

"""A token bucket without a clock: how many events a second a server may cause."""


class TokenBucket:
    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None
        self.dropped = 0

    def allow(self, now: float) -> bool:
        """Spend one token; False (and counted in `dropped`) when none is left at `now` seconds."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            self.dropped += 1
            return False
        self._tokens -= 1.0
        return True

    def dropping(self, now: float) -> bool:
        """Whether events are dropped at `now`, or were until a moment ago: the bucket has hardly filled since."""
        if not self.dropped or self._at is None:
            return False
        return self._tokens + (now - self._at) * self._rate < self._burst / 20

    def take_dropped(self) -> int:
        dropped, self.dropped = self.dropped, 0
        return dropped

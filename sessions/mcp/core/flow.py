"""A token bucket without a clock: limits how many events per second a server may cause."""


class TokenBucket:
    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at: float | None = None
        self.dropped = 0

    def allow(self, now: float) -> bool:
        """Spend one token at `now` seconds. Without a token left, count the event in `dropped` and return False."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1.0:
            self.dropped += 1
            return False
        self._tokens -= 1.0
        return True

    def dropping(self, now: float) -> bool:
        """Whether events are being dropped at `now`, or were until a moment ago: the bucket is less than 5 % full."""
        if not self.dropped or self._at is None:
            return False
        return self._tokens + (now - self._at) * self._rate < self._burst / 20

    def take_dropped(self) -> int:
        dropped, self.dropped = self.dropped, 0
        return dropped

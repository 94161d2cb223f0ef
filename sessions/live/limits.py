"""Limits on the requests of one socket."""

from django.conf import settings

TEXT_BYTES = 64 * 1024
CALL_BYTES = 1024 * 1024
BUFFER_BYTES = 1024 * 1024
MESSAGES_PER_SECOND = 20.0
MESSAGES_BURST = 100.0
TOPICS = 100
FILTERED = 4
CALLS_IN_FLIGHT = 100
HELLO_SECONDS = 5.0


def sockets_per_user() -> int:
    return int(getattr(settings, "SOCKETS_PER_USER", 10))


class Bucket:
    """A token bucket: `rate` per second on average, up to `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._level, self._at = burst, now

    def take(self, now: float) -> bool:
        self._level = min(self._burst, self._level + (now - self._at) * self._rate)
        self._at = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

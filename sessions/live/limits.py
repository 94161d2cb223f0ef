"""Limits on the requests of one socket. What a user can exceed is in servers.limits, with its words."""

from servers import limits

TEXT_BYTES = limits.number("socket_message_bytes")
CALL_BYTES = limits.number("socket_call_bytes")
BUFFER_BYTES = 1024 * 1024
#: not for calls, which have `socket_calls_in_flight`
MESSAGES_PER_SECOND = limits.value("socket_messages_per_second")
MESSAGES_BURST = 5 * MESSAGES_PER_SECOND
TOPICS = limits.number("socket_topics")
CALLS_IN_FLIGHT = limits.number("socket_calls_in_flight")
HELLO_SECONDS = 5.0
#: close code: what happened, and the limits
EXCEEDED = {
    4009: ("A message of this page was too large", ("socket_message_bytes", "socket_call_bytes")),
    4029: ("Too many messages from this page", ("socket_messages_per_second",)),
    4030: ("Too many open tabs", ("sockets_per_user",)),
}


def sockets_per_user() -> int:
    return limits.number("sockets_per_user")


def refusal(code: int) -> str:
    """Words for a page whose socket is closed with this code; empty where it exceeded no limit."""
    happened, names = EXCEEDED.get(code, ("", ()))
    return f"{happened}. {limits.stated(*names)}" if names else ""


def size_of(text: str) -> int:
    """In bytes. Most texts are ASCII, and Python knows that of each without a look at it."""
    return len(text) if text.isascii() else len(text.encode())


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

"""Limits on the requests of one socket. Those that a user can exceed are in servers.limits, with their texts."""

from enum import IntEnum

from servers import limits

TEXT_BYTES = limits.number("socket_message_bytes")
CALL_BYTES = limits.number("socket_call_bytes")
BUFFER_BYTES = 1024 * 1024
#: not for calls, which have `socket_calls_in_flight`
MESSAGES_PER_SECOND = limits.value("socket_messages_per_second")
MESSAGES_BURST = 5 * MESSAGES_PER_SECOND
TOPICS = limits.number("socket_topics")
#: a message may name as many topics as a page may have; each is read, so beyond that it counts as a message
TOPICS_BURST = MESSAGES_BURST + TOPICS
CALLS_IN_FLIGHT = limits.number("socket_calls_in_flight")
HELLO_SECONDS = 5.0


class CloseCode(IntEnum):
    """Why mcpadmin closes a socket. static/js/live-connection.js knows NOT_SIGNED_IN."""

    PROTOCOL_VIOLATED = 4400
    NOT_SIGNED_IN = 4401
    NO_PERMISSIONS = 4403
    NO_HELLO = 4408
    TOO_SLOW = 4008
    MESSAGE_TOO_LARGE = 4009
    TOO_MANY_MESSAGES = 4029
    TOO_MANY_SOCKETS = 4030
    FAILED = 4500


#: what happened, and the limits
EXCEEDED = {
    CloseCode.MESSAGE_TOO_LARGE: (
        "A message from this page was too large",
        ("socket_message_bytes", "socket_call_bytes"),
    ),
    CloseCode.TOO_MANY_MESSAGES: ("Too many messages from this page", ("socket_messages_per_second",)),
    CloseCode.TOO_MANY_SOCKETS: ("Too many open tabs", ("sockets_per_user",)),
}


def sockets_per_user() -> int:
    return limits.number("sockets_per_user")


def refusal(code: CloseCode) -> str:
    """Words for a page whose socket is closed with this code; empty if it exceeded no limit."""
    happened, names = EXCEEDED.get(code, ("", ()))
    return f"{happened}. {limits.stated(*names)}" if names else ""


def size_of(text: str) -> int:
    """The size in bytes. Most texts are ASCII, and Python knows which are without scanning them."""
    return len(text) if text.isascii() else len(text.encode())

"""Explains in words which side ended a WebSocket connection, and why (RFC 6455 section 7.4)."""

from collections.abc import Mapping
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from ...core.errors import Fault, McpError, ProtocolError, TransportError
from ...core.limits import Limits

#: Meanings of a server's close code, in words (RFC 6455 section 7.4.1 and the IANA registry).
_CODES: Final[Mapping[int, str]] = {
    CloseCode.NORMAL_CLOSURE: "it is finished",
    CloseCode.GOING_AWAY: "it is going away",
    CloseCode.PROTOCOL_ERROR: "it encountered a protocol error",
    CloseCode.UNSUPPORTED_DATA: "it does not accept this type of data",
    CloseCode.INVALID_DATA: "it received invalid data",
    CloseCode.POLICY_VIOLATION: "its policy forbids this",
    CloseCode.MESSAGE_TOO_BIG: "our message is too big",
    CloseCode.INTERNAL_ERROR: "it encountered an internal error",
    CloseCode.SERVICE_RESTART: "it is restarting",
    CloseCode.TRY_AGAIN_LATER: "it is overloaded",
}


def closed(exc: ConnectionClosed, limits: Limits) -> McpError:
    """The error for every waiting request. It does not repeat the reason text of the server's close frame."""
    sent, received = exc.sent, exc.rcvd
    if sent is not None and not exc.rcvd_then_sent:
        return _closed_by_us(sent.code, limits)
    if received is None:
        return TransportError(Fault.CONNECTION_LOST, "The WebSocket connection broke.", may_have_run=True)
    words = _CODES.get(received.code, "unknown reason")
    detail = f"The server closed the WebSocket connection: {words} (code {received.code})."
    return TransportError(Fault.CONNECTION_LOST, detail, may_have_run=True)


def _closed_by_us(code: int, limits: Limits) -> McpError:
    if code == CloseCode.MESSAGE_TOO_BIG:
        detail = f"The server sent a message over the limit of {limits.message_bytes} bytes, or in too many pieces."
        return ProtocolError(Fault.MESSAGE_LIMIT, detail)
    if code in (CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA):
        return ProtocolError(Fault.INVALID_MESSAGE, "The server broke the WebSocket protocol.")
    return TransportError(Fault.CONNECTION_LOST, "The WebSocket connection was closed.", may_have_run=True)

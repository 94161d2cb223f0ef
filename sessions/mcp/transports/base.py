"""The interface between client and transports, and the only mapping of the HTTP libraries' errors.

A transport moves bytes and owns processes or sockets; its job ends with a whole message. It knows no MCP method, except
where the HTTP binding of the specification names one.
"""

import abc
import contextlib
import os
import re
import ssl
from collections.abc import Awaitable, Iterator
from typing import Final, Protocol

import aiohttp
import httpx

from ..core.errors import AddressRefused, Fault, HttpError, InvalidRequest, McpError, ProtocolError, TransportError
from ..core.session import Outgoing
from ..core.versions import Revision
from .proxy import ProxyError

__all__ = ["HttpError", "Outgoing", "Receiver", "RefusedByPolicy", "Transport", "TransportError", "translated"]

#: in the words of asyncio for a host with several addresses
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class Receiver(Protocol):
    """The callbacks of a transport, always called from the event loop's thread. No method waits or raises."""

    @property
    def shedding(self) -> bool:
        """Whether events are being dropped because the peer sends them too fast. If so, read from it less often."""

    def message(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> None:
        """One whole message (or batch). `answering`: the request whose own reply stream carried it.
        `status`: the HTTP status when it was not 2xx."""

    def broken(self, error: McpError, head: bytes, *, unfinished: bool = False) -> bool:
        """A message that could not be read completely; `head` is its beginning, plus its end if that was read. False if
        it is `unfinished` and `head` does not name the request: this is then called again at its end."""

    def line(self, stream: str, text: str) -> None:
        """A diagnostic line: `stderr`, or `stdout` for text that is not a message; otherwise a transport remark."""

    def feed(self, lost: str, *, retried: bool = True) -> None:
        """Reports on a separate stream for messages that belong to no request. Empty `lost`: the stream is open.
        Otherwise `lost` says why notifications do not arrive, and `retried` whether the transport reopens it."""

    def lost(self, error: McpError) -> None:
        """The connection ended unexpectedly. Called at most once, as the last callback."""


class Transport(abc.ABC):
    """One connection to one server, for one run. A lost or closed transport is never reopened."""

    #: machine word for pages: "stdio", "streamable_http", "http_sse", "websocket"
    kind: str
    #: True: each request has its own reply stream (Streamable HTTP). False: one duplex stream (all others).
    exchange: bool
    #: the modern era does not define this transport, so no probe is needed
    legacy_only: bool = False
    #: the kind to switch to if the server does not support this one; empty: none
    fallback: str = ""

    @property
    def url(self) -> str:
        """The URL in use after permitted redirects; empty for a child process."""
        return ""

    @property
    def has_wire_session(self) -> bool:
        """Whether the server assigned a session id that every message carries."""
        return False

    @abc.abstractmethod
    async def resolve(self) -> str:
        """Find the target (command on PATH, addresses of a name) and describe it in words."""

    @abc.abstractmethod
    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        """Start the process or prepare the connection, and describe it in words. `check`: prove that a connection
        works, even if the transport would otherwise open it with the first request."""

    @abc.abstractmethod
    async def send(self, outgoing: Outgoing) -> None:
        """Send one message.

        Duplex: returns when the message was handed to the peer. Exchange: for a request, returns when its reply stream
        has ended, after the answer was passed to `Receiver.message`. Raises McpError. Its `may_have_run` is False only
        if not one byte of the message can have arrived. Cancellation closes the reply stream."""

    def negotiated(self, revision: Revision | None) -> None:  # noqa: B027  a duplex transport has nothing to do here
        """Use this revision for later messages. None: undecided again, clear all wire state."""

    async def ready(self) -> None:  # noqa: B027  only Streamable HTTP has a stream to open here
        """The legacy handshake is complete: open what must wait for it (the standalone GET stream)."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Release everything within a few seconds. Never raises for an uncooperative peer."""


class OpenTransport(Protocol):
    """Creates a new, unconnected transport. By default it follows the description. `kind` selects another one that
    the description allows (Transport.fallback, or a remembered kind). `url` applies only within the same origin."""

    def __call__(self, kind: str = "", url: str = "") -> Awaitable[Transport]: ...


class RefusedByPolicy(OSError):
    """Raised when a socket is about to be opened. It is an OSError so that HTTP libraries pass it on unchanged."""


#: Messages of aiohttp's parser when response headers exceed our bounds.
_HEADER_LIMIT_WORDS: Final = ("more than", "Too many headers", "too long")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate every error of httpx and aiohttp into one of ours.

    Only an error that aiohttp raises while it connects proves that nothing was sent: ClientConnectorError, or
    ConnectionTimeoutError for the same step. httpx.ConnectTimeout proves nothing: the HTTP engine also raises it when a
    server read the request and then reset the connection.
    """
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, TimeoutError, OSError, ValueError) as exc:
        raise _translate(exc) from exc


def _translate(exc: Exception) -> McpError:
    cause = exc.__cause__ if isinstance(exc, httpx.HTTPError) and isinstance(exc.__cause__, Exception) else exc
    if isinstance(cause, aiohttp.ClientConnectorError):
        return connect_error(cause.os_error)
    if isinstance(cause, aiohttp.ConnectionTimeoutError):
        return TransportError(Fault.TIMEOUT, "Could not connect in time.", may_have_run=False)
    if isinstance(cause, (aiohttp.InvalidURL, httpx.InvalidURL, httpx.UnsupportedProtocol)):
        return InvalidRequest("The URL is not a valid http or https address.")
    if isinstance(cause, aiohttp.ClientResponseError):
        return _bad_response(cause)
    if isinstance(cause, (TimeoutError, httpx.TimeoutException)):
        return TransportError(Fault.TIMEOUT, "The server did not answer in time.", may_have_run=True)
    if isinstance(cause, ValueError) and not isinstance(cause, (OSError, aiohttp.ClientError)):
        return InvalidRequest(f"The request cannot be written as HTTP: {type(cause).__name__}.")
    return TransportError(
        Fault.CONNECTION_LOST, "The connection ended before the response was complete.", may_have_run=True
    )


def _bad_response(exc: aiohttp.ClientResponseError) -> ProtocolError:
    if any(words in exc.message for words in _HEADER_LIMIT_WORDS):
        return ProtocolError(Fault.HEADER_LIMIT, "The response headers exceed the limit.")
    return ProtocolError(Fault.NOT_MCP, "The response is not valid HTTP.")


def connect_error(error: OSError) -> McpError:
    """Translate an error of opening a connection, where certainly nothing was sent."""
    if isinstance(error, RefusedByPolicy):
        return AddressRefused(str(error))
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason or type(error).__name__
        return TransportError(
            Fault.TLS_FAILED, f"Could not establish a secure connection: {reason}.", may_have_run=False
        )
    if isinstance(error, ProxyError):
        return TransportError(Fault.CONNECTION_REFUSED, str(error), may_have_run=False)
    if isinstance(error, NameNotResolved):
        return TransportError(Fault.DNS_FAILED, str(error), may_have_run=False)
    # asyncio's own words name a call of Python ("Connect call failed ('127.0.0.1', 9)"), the number says what happened.
    found = _ERRNO.search(str(error))
    number = error.errno or (int(found[1]) if found else 0)
    reason = os.strerror(number) if number > 0 else error.strerror or str(error) or type(error).__name__
    return TransportError(Fault.CONNECTION_REFUSED, f"Could not connect: {reason[:200]}.", may_have_run=False)


class NameNotResolved(OSError):
    """The host name has no address, or its lookup failed or timed out."""

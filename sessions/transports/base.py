"""The contract between the client and a transport, and the one map of the HTTP libraries' errors.

A transport moves bytes and owns processes or sockets; its job ends at "here is a message". It knows no MCP
method except where the HTTP binding of the specification names one.
"""

import abc
import contextlib
import ssl
from collections.abc import Awaitable, Iterator
from typing import Final, Protocol

import aiohttp
import httpx

from ..protocol.errors import AddressRefused, Fault, HttpError, InvalidRequest, McpError, ProtocolError, TransportError
from ..protocol.session import Outgoing
from ..protocol.versions import Revision

__all__ = ["HttpError", "Outgoing", "Receiver", "RefusedByPolicy", "Transport", "TransportError", "translated"]


class Receiver(Protocol):
    """What a transport calls, always from the event loop's thread. No method waits or raises."""

    @property
    def shedding(self) -> bool:
        """Whether events are thrown away at the moment, because the peer sends them too fast: read it less often."""

    def message(self, data: bytes, answering: Outgoing | None = None, status: int | None = None) -> None:
        """One whole message (or batch). `answering`: the request whose own reply stream carried it.
        `status`: the HTTP status when it was not 2xx."""

    def broken(self, error: McpError, head: bytes) -> None:
        """A message that could not be taken whole; `head` is its beginning."""

    def line(self, stream: str, text: str) -> None:
        """A diagnostic line: `stderr`, or `stdout` for text that is no message."""

    def feed(self, lost: str, *, retried: bool = True) -> None:
        """Where a stream of its own carries what belongs to no request: it is open (`lost` is empty), or why what
        the server says by itself does not reach us. `retried`: it is being opened again."""

    def lost(self, error: McpError) -> None:
        """The connection ended without our wish. Called at most once; nothing follows it."""


class Transport(abc.ABC):
    """One connection to one server, for one run: a lost or closed transport is never opened again."""

    #: machine word for pages: "stdio", "streamable_http", "http_sse", "websocket"
    kind: str
    #: each request has a reply stream of its own (Streamable HTTP); False: one duplex stream (all others)
    exchange: bool
    #: the modern era does not define this transport: nothing to probe
    legacy_only: bool = False
    #: the kind to change to where the server turns out not to speak this one; empty: there is no other
    fallback: str = ""

    @property
    def url(self) -> str:
        """The URL in use after permitted redirects; empty for a child process."""
        return ""

    @property
    def heard(self) -> bool:
        """Whether a single byte came from the peer yet (a slow start is no silence)."""
        return True

    @property
    def has_wire_session(self) -> bool:
        """Whether the server gave a session id that travels with each message."""
        return False

    @abc.abstractmethod
    async def resolve(self) -> str:
        """Find what to connect to (command on PATH, addresses of a name); returns it in words."""

    @abc.abstractmethod
    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        """Start the process or prepare the connection; returns it in words. `check`: prove that a connection
        can be made, even where the transport would open it with the first request."""

    @abc.abstractmethod
    async def send(self, outgoing: Outgoing) -> None:
        """Send one message.

        Duplex: returns when it was handed to the peer. Exchange: for a request, returns when its reply stream
        is over, after the answer went to `Receiver.message`. Raises McpError; `may_have_run` of the error is
        True unless not one byte of the message can have arrived. When cancelled, the reply stream is closed."""

    def negotiated(self, revision: Revision | None) -> None:  # noqa: B027  a duplex transport has nothing to do here
        """From now on messages follow this revision; None: undecided again, forget all wire state."""

    async def ready(self) -> None:  # noqa: B027  only Streamable HTTP has a stream to open here
        """The legacy handshake is over: open what may only be opened now (the standalone GET stream)."""

    @abc.abstractmethod
    async def close(self) -> None:
        """End everything within a few seconds; never raises for a peer that does not cooperate."""


class OpenTransport(Protocol):
    """Makes a new, not yet connected transport: the description's own, or with `kind` another one that it allows
    (Transport.fallback, or what is remembered of the server), at `url` where that is of the same origin."""

    def __call__(self, kind: str = "", url: str = "") -> Awaitable[Transport]: ...


class RefusedByPolicy(OSError):
    """Raised where a socket would be opened: an OSError, so that HTTP libraries carry it through unharmed."""


#: What aiohttp's parser says when a response's headers exceed the bounds that we gave it.
_HEADER_LIMIT_WORDS: Final = ("more than", "Too many headers", "too long")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn every error of httpx and aiohttp into one of ours.

    Only a cause that aiohttp raises while it connects proves that nothing was sent (ClientConnectorError, and
    ConnectionTimeoutError around the same step): the HTTP engine reports a server that read the request and then
    reset the connection as httpx.ConnectTimeout too.
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
        return TransportError(Fault.TIMEOUT, "No connection could be made in time.", may_have_run=False)
    if isinstance(cause, (aiohttp.InvalidURL, httpx.InvalidURL, httpx.UnsupportedProtocol)):
        return InvalidRequest("The URL is not a valid http or https address.")
    if isinstance(cause, aiohttp.ClientResponseError):
        return _bad_response(cause)
    if isinstance(cause, (TimeoutError, httpx.TimeoutException)):
        return TransportError(Fault.TIMEOUT, "The server did not answer in time.", may_have_run=True)
    if isinstance(cause, ValueError) and not isinstance(cause, (OSError, aiohttp.ClientError)):
        return InvalidRequest(f"The request cannot be written as HTTP: {type(cause).__name__}.")
    return TransportError(
        Fault.CONNECTION_LOST, "The connection ended before the answer was complete.", may_have_run=True
    )


def _bad_response(exc: aiohttp.ClientResponseError) -> ProtocolError:
    if any(words in exc.message for words in _HEADER_LIMIT_WORDS):
        return ProtocolError(Fault.HEADER_LIMIT, "The headers of the answer are over the limit.")
    return ProtocolError(Fault.NOT_MCP, "The answer is not valid HTTP.")


def connect_error(error: OSError) -> McpError:
    """An error of opening a connection: certainly nothing was sent."""
    if isinstance(error, RefusedByPolicy):
        return AddressRefused(str(error))
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", "") or error.reason or type(error).__name__
        return TransportError(Fault.TLS_FAILED, f"No secure connection could be made: {reason}.", may_have_run=False)
    if isinstance(error, NameNotResolved):
        return TransportError(Fault.DNS_FAILED, str(error), may_have_run=False)
    reason = error.strerror or str(error) or type(error).__name__
    return TransportError(Fault.CONNECTION_REFUSED, f"No connection could be made: {reason[:200]}.", may_have_run=False)


class NameNotResolved(OSError):
    """The host name has no address, or its lookup failed or took too long."""

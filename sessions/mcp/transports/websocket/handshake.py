"""Opens a WebSocket connection: address check, TLS, HTTP handshake, and redirects within the same origin."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import Event
from websockets.typing import Subprotocol

from ...core.errors import AuthorizationError, Fault, HttpError, InvalidRequest, McpError, ProtocolError, TransportError
from ...core.limits import MIB
from ...core.methods import INITIALIZE
from ...core.refusals import READ_BYTES, with_words, words_in
from ..authorizing import Trial
from ..base import connect_error
from ..dialing import connected_socket, wire_host
from ..endpoint import Endpoint
from ..recording import Exchange
from ..streamable_http import answers
from ..streamable_http.wire import parsed_url

SUBPROTOCOL: Final = Subprotocol("mcp")
#: seconds between our pings, which keep gateways from cutting a silent connection
PING: Final = 20.0
#: seconds to wait for the closing handshake
CLOSING: Final = 2.0
#: bytes of our pongs that a pinging peer may leave unread
_UNREAD: Final = 32 * MIB
#: frames queued for us: above the first number, reading stops until no more than the second are left. A frame may be as
#: large as a message. Small ones still arrive many at a time, because one read of the socket returns several
_WAITING: Final = (1, 0)
_SCHEMES: Final = {"ws": "http", "wss": "https"}

# At level DEBUG the library logs every header and frame, including credentials. This logger is not registered, because
# logging.config would re-enable a registered one.
_silent = logging.Logger(f"{__name__}.library", level=logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Handshake:
    """Opens connections to one endpoint."""

    endpoint: Endpoint

    async def opened(self, url: httpx.URL) -> tuple[ClientConnection, httpx.URL, Exchange]:
        """The connection, its final URL, and its recorded handshake. HttpError if the server answers the handshake with
        an HTTP status."""
        authorizer = self.endpoint.authorization
        trial = authorizer.trial(INITIALIZE) if authorizer is not None else None
        redirects = 0
        while redirects <= answers.MAX_REDIRECTS:
            token = await trial.headers("GET", str(url)) if trial is not None else {}
            try:
                connection, exchange = await self._attempt(url, token)
                self.endpoint.sent(bool(token))
                return connection, url, exchange
            except InvalidStatus as exc:
                self.endpoint.sent(bool(token))
                error = _refused(exc, credential=self.endpoint.credential or bool(token))
                if trial is not None and await _admitted(trial, exc, error):
                    continue
                if not 300 <= error.status < 400:
                    raise error from exc
                url, redirects = _redirected(exc, url), redirects + 1
        raise HttpError(Fault.REDIRECTED, "The server redirects in a loop.", status=307, may_have_run=False)

    async def _attempt(self, url: httpx.URL, token: Mapping[str, str]) -> tuple[ClientConnection, Exchange]:
        end = self.endpoint
        headers = {**end.headers(), **token}
        exchange = end.recorder.exchange("GET", websocket_url(url), headers)
        try:
            connection = await self._connected(url, headers)
        except InvalidStatus as exc:  # the caller reads the status
            exchange.answered(exc.response.status_code, _raw(exc.response))
            exchange.ended()
            raise
        except McpError as error:
            exchange.failed(error.fault, error.detail)
            raise
        if connection.response is not None:
            exchange.answered(connection.response.status_code, _raw(connection.response))
        return connection, exchange

    async def _connected(self, url: httpx.URL, headers: Mapping[str, str]) -> ClientConnection:
        end = self.endpoint
        opened = await connected_socket(url, end.policy, end.connect_timeout)
        secure: dict[str, Any] = {"ssl": end.tls_in_use, "server_hostname": wire_host(url)}
        try:
            return await _Connect(
                websocket_url(url),
                sock=opened,
                proxy=None,
                subprotocols=[SUBPROTOCOL],
                compression=None,
                additional_headers=headers,
                user_agent_header="mcpadmin",
                max_size=end.limits.message_bytes,
                max_queue=_WAITING,
                open_timeout=end.connect_timeout,
                ping_interval=PING,
                ping_timeout=None,  # the client's keep-alive decides: a busy peer does not answer pings either
                close_timeout=CLOSING,
                logger=_silent,
                create_connection=GuardedConnection,
                **(secure if url.scheme == "https" else {}),
            )
        except InvalidStatus:
            raise
        except (OSError, WebSocketException, ValueError) as exc:
            opened.close()
            raise _handshake_error(exc, end.connect_timeout) from exc
        except BaseException:  # a cancelled handshake must not leak its socket either
            opened.close()
            raise


def _raw(response: Response) -> Iterable[tuple[bytes, bytes]]:
    return (
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in response.headers.raw_items()
    )


class _Connect(connect):
    """Disables the library's redirects, which may lead to another origin."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class GuardedConnection(ClientConnection):
    """Aborts if the peer keeps sending pings without reading pongs, or broke the protocol or a limit.
    In the latter case the library would keep reading until the peer answers its close frame."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.protocol.parser_exc is not None:
            self.transport.abort()

    def process_event(self, event: Event) -> None:
        super().process_event(event)
        if isinstance(event, Frame) and event.opcode is Opcode.PING:
            waiting = self.transport.get_write_buffer_size()
            if waiting > _UNREAD:
                self.transport.abort()


async def _admitted(trial: Trial, exc: InvalidStatus, error: HttpError) -> bool:
    """Whether to repeat a handshake that was refused for lack of a token (see Wire)."""
    response = _response(exc)
    if response.status_code not in (401, 403):
        return False
    try:
        return await trial.refused(answers.refusal(response))
    except AuthorizationError as needed:
        if error.fault is Fault.KEY_NEEDED and needed.fault is Fault.UNAUTHORIZED:
            raise error from needed
        needed.detail = with_words(needed.detail, error.words)
        raise


def _refused(exc: InvalidStatus, *, credential: bool) -> HttpError:
    response = _response(exc)
    words = words_in(bytes(exc.response.body or b"")[:READ_BYTES], answers.media_type(response))
    return answers.status_error(response, words, credential=credential)


def _response(exc: InvalidStatus) -> httpx.Response:
    return httpx.Response(exc.response.status_code, headers=list(exc.response.headers.raw_items()))


def _redirected(exc: InvalidStatus, url: httpx.URL) -> httpx.URL:
    """The URL for the repeated handshake, or HttpError."""
    response = _response(exc)
    location = response.headers.get("location", "")
    scheme, separator, rest = location.partition("://")
    if separator and scheme.lower() in _SCHEMES:
        response.headers["location"] = f"{_SCHEMES[scheme.lower()]}://{rest}"
    # Like `initialize`, a handshake changes nothing on the server.
    return answers.redirect_target(response, url, INITIALIZE)


def http_twin(text: str) -> httpx.URL:
    """The http or https form of the address, for the handshake. InvalidRequest unless it is a ws or wss URL."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        raise InvalidRequest("The URL must begin with ws:// or wss:// and name a host.")
    return parsed_url(f"{_SCHEMES[scheme.lower()]}://{rest}")


def websocket_url(twin: httpx.URL) -> str:
    return "ws" + str(twin).removeprefix("http")


def _handshake_error(exc: Exception, seconds: float) -> McpError:
    """Translate a failed handshake: no MCP message was sent yet."""
    if isinstance(exc, TimeoutError):
        detail = f"The WebSocket handshake took longer than {seconds:g} s."
        return TransportError(Fault.TIMEOUT, detail, may_have_run=False)
    if isinstance(exc, OSError):
        return connect_error(exc)
    if isinstance(exc, InvalidHandshake):
        detail = "The server did not answer the WebSocket handshake correctly. Check the path of the URL."
        return ProtocolError(Fault.NOT_MCP, detail, may_have_run=False)
    return InvalidRequest(f"The WebSocket handshake cannot be written: {type(exc).__name__}.")

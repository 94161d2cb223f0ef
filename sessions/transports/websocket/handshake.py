"""From a WebSocket URL to an open connection: judged address, TLS, HTTP handshake, redirects of the same origin."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import Event
from websockets.typing import Subprotocol

from ...protocol.errors import Fault, HttpError, InvalidRequest, McpError, ProtocolError, TransportError
from ...protocol.limits import MIB
from ...protocol.methods import INITIALIZE
from ..authorizing import Trial
from ..base import connect_error
from ..endpoint import Endpoint
from ..reach import connected_socket, wire_host
from ..streamable_http import answers
from ..streamable_http.wire import parsed_url
from .closing import PING, PONG

SUBPROTOCOL: Final = Subprotocol("mcp")
#: seconds for the closing handshake
CLOSING: Final = 2.0
#: bytes of ours that a pinging peer may leave unread
_UNREAD: Final = 32 * MIB
_SCHEMES: Final = {"ws": "http", "wss": "https"}

# At level DEBUG the library writes every header and frame, and with them credentials. The logger is in no registry:
# logging.config would enable a registered one again.
_silent = logging.Logger(f"{__name__}.library", level=logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Handshake:
    """How connections to one server are opened."""

    endpoint: Endpoint

    async def opened(self, url: httpx.URL) -> tuple[ClientConnection, httpx.URL]:
        """The connection, and the URL that it led to. HttpError when the handshake is answered with a status."""
        authorizer = self.endpoint.authorization
        trial = authorizer.trial(INITIALIZE) if authorizer is not None else None
        redirects = 0
        while redirects <= answers.MAX_REDIRECTS:
            token = await trial.headers("GET", str(url)) if trial is not None else {}
            try:
                return await self._attempt(url, token), url
            except InvalidStatus as exc:
                if trial is not None and await _admitted(trial, exc):
                    continue
                url, redirects = _redirected(exc, url), redirects + 1
        raise HttpError(Fault.REDIRECTED, "The server redirects in a circle.", status=307, may_have_run=False)

    async def _attempt(self, url: httpx.URL, token: Mapping[str, str]) -> ClientConnection:
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
                additional_headers={**end.headers(), **token},
                user_agent_header="mcpadmin",
                max_size=end.limits.message_bytes,
                open_timeout=end.connect_timeout,
                ping_interval=PING,
                ping_timeout=PONG,
                close_timeout=CLOSING,
                logger=_silent,
                create_connection=GuardedConnection,
                **(secure if url.scheme == "https" else {}),
            )
        except InvalidStatus:
            raise  # the caller reads the status
        except (OSError, WebSocketException, ValueError) as exc:
            opened.close()
            raise _handshake_error(exc, end.connect_timeout) from exc
        except BaseException:  # a cancelled handshake must not keep its socket either
            opened.close()
            raise


class _Connect(connect):
    """Leaves redirects to us: the library would follow one to another origin."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class GuardedConnection(ClientConnection):
    """Gives up a peer that asks for pongs without end and takes none of them, and one that broke the protocol or a
    limit: the library would read on until its goodbye is answered."""

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


async def _admitted(trial: Trial, exc: InvalidStatus) -> bool:
    """Whether a handshake that was refused for want of a token may be sent once more."""
    response = _response(exc)
    if response.status_code not in (401, 403):
        return False
    return await trial.refused(answers.refusal(response))


def _response(exc: InvalidStatus) -> httpx.Response:
    return httpx.Response(exc.response.status_code, headers=list(exc.response.headers.raw_items()))


def _redirected(exc: InvalidStatus, url: httpx.URL) -> httpx.URL:
    """Where the handshake may be repeated, or HttpError for its status."""
    response = _response(exc)
    if not 300 <= response.status_code < 400:
        raise answers.status_error(response, wire_session=False) from exc
    location = response.headers.get("location", "")
    scheme, separator, rest = location.partition("://")
    if separator and scheme.lower() in _SCHEMES:
        response.headers["location"] = f"{_SCHEMES[scheme.lower()]}://{rest}"
    # A handshake changes nothing at the server, as `initialize` does not.
    return answers.redirect_target(response, url, INITIALIZE)


def http_twin(text: str) -> httpx.URL:
    """The same address as http or https, which the handshake is; InvalidRequest unless it is a ws or wss URL."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        raise InvalidRequest("The URL must begin with ws:// or wss:// and name a host.")
    return parsed_url(f"{_SCHEMES[scheme.lower()]}://{rest}")


def websocket_url(twin: httpx.URL) -> str:
    return "ws" + str(twin).removeprefix("http")


def _handshake_error(exc: Exception, seconds: float) -> McpError:
    """Nothing of MCP was sent yet."""
    if isinstance(exc, TimeoutError):
        detail = f"The WebSocket handshake took longer than {seconds:g} s."
        return TransportError(Fault.TIMEOUT, detail, may_have_run=False)
    if isinstance(exc, OSError):
        return connect_error(exc)
    if isinstance(exc, InvalidHandshake):
        detail = "The server does not answer the WebSocket handshake as it should. Check the path of the URL."
        return ProtocolError(Fault.NOT_MCP, detail, may_have_run=False)
    return InvalidRequest(f"The WebSocket handshake cannot be written: {type(exc).__name__}.")

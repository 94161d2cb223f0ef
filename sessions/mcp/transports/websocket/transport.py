"""The WebSocket transport: sends and receives frames, and interprets the end of the connection."""

import asyncio

import httpx
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from ...core.errors import Fault, McpError, NotReady, ProtocolError
from ...core.session import Outgoing
from ..base import Receiver, Transport
from ..dialing import addresses, wire_host
from ..endpoint import Endpoint
from ..fairness import Share
from ..recording import UNRECORDED_EXCHANGE, Exchange
from .closing import closed
from .handshake import CLOSING, SUBPROTOCOL, Handshake, http_twin, websocket_url


class WebSocketTransport(Transport):
    kind = "websocket"
    exchange = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._limits = endpoint, endpoint.limits
        self._handshake = Handshake(endpoint)
        self._twin: httpx.URL | None = None
        self._receiver: Receiver | None = None
        self._connection: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self._over = False
        self._recorder = endpoint.recorder
        self._exchange: Exchange = UNRECORDED_EXCHANGE

    @property
    def url(self) -> str:
        return websocket_url(self._twin) if self._twin is not None else ""

    async def resolve(self) -> str:
        twin = http_twin(self._endpoint.url)
        return ", ".join(await addresses(twin, self._endpoint.policy, self._endpoint.connect_timeout))

    async def connect(self, receiver: Receiver, *, check: bool = False) -> str:
        """Open the connection; `check` changes nothing. HttpError if the server answers with an HTTP status."""
        self._receiver = receiver
        connection, self._twin, self._exchange = await self._handshake.opened(http_twin(self._endpoint.url))
        self._connection = connection
        if connection.subprotocol != SUBPROTOCOL:
            receiver.line("websocket", "The server did not select the subprotocol mcp; the connection is used anyway.")
        self._reader = asyncio.create_task(self._read(connection, receiver), name="mcp WebSocket reader")
        peer = connection.remote_address  # None if the peer is already gone
        direct = self._endpoint.policy.proxy is None
        where = f"{peer[0]} port {peer[1]}" if peer and direct else wire_host(self._twin)
        return f"{where} with TLS" if self._twin.scheme == "https" else where

    async def send(self, outgoing: Outgoing) -> None:
        if self._connection is None or self._over:
            raise NotReady("The WebSocket connection is not open.")
        outgoing.left = True
        self._recorder.sent(outgoing, self._exchange)
        try:
            await self._connection.send(outgoing.data, text=True)
        except ConnectionClosed as exc:
            raise closed(exc, self._limits) from exc

    async def close(self) -> None:
        self._over = True
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait((self._reader,))
        if self._connection is not None:
            await self._close_connection(self._connection)

    async def _close_connection(self, connection: ClientConnection) -> None:
        try:
            async with asyncio.timeout(2 * CLOSING):
                await connection.close()
        except (TimeoutError, OSError, WebSocketException):
            pass  # the peer does not complete the closing handshake
        finally:
            self._exchange.ended()
            connection.transport.abort()

    # -- reading

    async def _read(self, connection: ClientConnection, receiver: Receiver) -> None:
        share = Share(asyncio.get_running_loop().time, lambda: receiver.shedding)
        try:
            while isinstance(frame := await connection.recv(), str):
                share.begin()
                data = frame.encode()
                self._exchange.read(len(data))
                self._recorder.received(data, exchange=self._exchange)
                receiver.message(data)
                if rest := share.end():
                    await asyncio.sleep(rest)
        except ConnectionClosed as exc:
            self._lose(closed(exc, self._limits))
        else:
            self._lose(ProtocolError(Fault.INVALID_MESSAGE, "The server sent a binary frame; MCP messages are text."))

    def _lose(self, error: McpError) -> None:
        if not self._over and self._receiver is not None:
            self._over = True
            self._exchange.ended()
            self._receiver.lost(error)

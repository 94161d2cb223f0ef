"""A scripted WebSocket peer that answers like a correct server unless a test replaces something."""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from .scripted_http import INITIALIZED

OK: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}
DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}


@dataclass
class WsPeer:
    url: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    handshakes: list[Request] = field(default_factory=list)
    connections: list[ServerConnection] = field(default_factory=list)

    def methods(self) -> list[str]:
        return [str(message.get("method", "")) for message in self.messages]


OnMessage = Callable[[ServerConnection, dict[str, Any]], Awaitable[bool]]
OnHandshake = Callable[[Request], tuple[int, dict[str, str]] | None]


async def as_usual(connection: ServerConnection, message: dict[str, Any]) -> bool:
    """An `on_message` that leaves every message to the peer."""
    return False


@asynccontextmanager
async def scripted_websocket(
    on_message: OnMessage = as_usual,
    *,
    on_handshake: OnHandshake | None = None,
    subprotocol: str | None = "mcp",
    modern: bool = False,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    **how: Any,
) -> AsyncIterator[WsPeer]:
    peer = WsPeer()

    async def handle(connection: ServerConnection) -> None:
        peer.connections.append(connection)
        try:
            async for text in connection:
                message = json.loads(text)
                peer.messages.append(message)
                if not await on_message(connection, message) and "id" in message:
                    await connection.send(json.dumps(reply(message, modern=modern)))
        except ConnectionClosed:
            pass  # the client disconnected

    def check(connection: ServerConnection, request: Request) -> Response | None:
        peer.handshakes.append(request)
        refusal = on_handshake(request) if on_handshake is not None else None
        if refusal is None:
            return None
        status, headers = refusal
        return Response(status, "Some Reason", Headers({"Content-Length": "0", **headers}))

    chosen: Any = how | ({"subprotocols": [subprotocol]} if subprotocol else {})
    async with serve(handle, host, port, process_request=check, close_timeout=1, ssl=tls, **chosen) as server:
        peer.url = f"ws{'s' if tls else ''}://{host}:{server.sockets[0].getsockname()[1]}/mcp"
        yield peer


def reply(message: dict[str, Any], *, modern: bool) -> dict[str, Any]:
    method, head = message.get("method"), {"jsonrpc": "2.0", "id": message["id"]}
    answers: dict[str, Any] = {"tools/list": TOOLS, "tools/call": OK}
    answers |= {"server/discover": DISCOVERED} if modern else {"initialize": INITIALIZED, "ping": {}}
    if method in answers:
        return head | {"result": answers[method]}
    return head | {"error": {"code": -32602, "message": "Invalid request parameters", "data": ""}}

"""The HTTP faces of a server on SDK 1.x: Streamable HTTP with and without sessions, HTTP+SSE, WebSocket.

Which ones exist depends on the SDK: Streamable HTTP came with 1.8.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.server.sse import SseServerTransport
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute

Build = Callable[..., Any]


def http_face(build: Build) -> Any:
    return build().streamable_http_app()


def all_faces(build: Build) -> Starlette:
    """Serve /mcp, /stateless/mcp, /sse and /ws in one process."""
    server = build()
    routes: list[Any] = [*_sse_routes(server), WebSocketRoute("/ws", _WebSocketFace(server))]
    managers = []
    if hasattr(server, "streamable_http_app"):
        stateless = build(stateless=True)
        routes.append(Mount("/stateless", app=stateless.streamable_http_app()))
        routes.extend(server.streamable_http_app().routes)
        managers = [server.session_manager, stateless.session_manager]
    return Starlette(routes=routes, lifespan=_running(managers))


def _running(managers: list[Any]) -> Callable[[Starlette], Any]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers:
                await stack.enter_async_context(manager.run())
            yield

    return lifespan


def _sse_routes(server: Any) -> list[Any]:
    sse = SseServerTransport("/messages/")

    async def stream(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
            await _run(server, streams)
        return Response()

    return [Route("/sse", endpoint=stream), Mount("/messages/", app=sse.handle_post_message)]


class _WebSocketFace:
    """An ASGI application, so that Starlette passes on the raw channel."""

    def __init__(self, server: Any) -> None:
        self._server = server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async with websocket_server(scope, receive, send) as streams:
            await _run(self._server, streams)


async def _run(server: Any, streams: Any) -> None:
    low = server._mcp_server
    await low.run(streams[0], streams[1], low.create_initialization_options())

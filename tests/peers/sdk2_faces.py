"""The HTTP faces of a server on SDK 2.x in one process: /mcp, /stateless/mcp, /sse."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount


def all_faces(build: Callable[..., Any]) -> Starlette:
    server, stateless = build(), build(stateless=True)
    with_sessions = server.streamable_http_app()
    without = stateless.streamable_http_app(stateless_http=True)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with server.session_manager.run(), stateless.session_manager.run():
            yield

    routes = [Mount("/stateless", app=without), *server.sse_app().routes, *with_sessions.routes]
    return Starlette(routes=routes, lifespan=lifespan)

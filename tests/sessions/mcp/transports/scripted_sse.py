"""A scripted server of 2024-11-05: one event stream, and POSTs that are answered on it."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from .scripted_http import INITIALIZED, Asked, Line, Script

ENDPOINT = "/messages?session=5e551011"
OLD = INITIALIZED | {"protocolVersion": "2024-11-05"}
OK: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}


class SseServer:
    """`script` is for scripted_http. A test replaces the handlers that should misbehave."""

    def __init__(self, *, endpoint: str | None = ENDPOINT, on_call: "OnCall | None" = None) -> None:
        self.endpoint = endpoint
        self.on_call: OnCall = on_call or answer_call
        self.on_get: Script = self.open_stream
        self.on_post: Script = self.take
        self.stream: Line | None = None
        self.opened = 0

    async def script(self, asked: Asked, line: Line) -> None:
        await (self.on_get if asked.verb == "GET" else self.on_post)(asked, line)

    async def open_stream(self, asked: Asked, line: Line) -> None:
        self.stream, self.opened = line, self.opened + 1
        await line.stream()
        if self.endpoint is not None:
            await self.event("endpoint", self.endpoint)
        await line.hang()

    async def event(self, name: str, data: str) -> None:
        assert self.stream is not None
        await self.stream.chunk(f"event: {name}\ndata: {data}\n\n".encode())

    async def message(self, message: Any) -> None:
        await self.event("message", json.dumps(message))

    async def answer(self, asked: Asked, result: Any) -> None:
        await self.message({"jsonrpc": "2.0", "id": asked.id, "result": result})

    async def take(self, asked: Asked, line: Line) -> None:
        """Refuse a POST to the stream's own URL, as real servers of that revision do."""
        if asked.path != self.endpoint:
            await line.reply(405, b"Method Not Allowed", "text/plain")
            return
        if asked.method == "tools/call":
            await self.on_call(self, asked, line)
            return
        await line.reply(202, b"Accepted", "text/plain")
        await self.respond(asked)

    async def respond(self, asked: Asked) -> None:
        if asked.id is None:
            return
        if asked.method == "initialize":
            await self.answer(asked, OLD)
        elif asked.method == "ping":
            await self.answer(asked, {})
        elif asked.method == "tools/list":
            await self.answer(asked, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        else:
            error = {"code": -32602, "message": "Invalid request parameters", "data": ""}
            await self.message({"jsonrpc": "2.0", "id": asked.id, "error": error})


OnCall = Callable[[SseServer, Asked, Line], Awaitable[None]]


async def answer_call(server: SseServer, asked: Asked, line: Line) -> None:
    await line.reply(202, b"Accepted", "text/plain")
    await server.answer(asked, OK)


async def answer_before_the_post_ends(server: SseServer, asked: Asked, line: Line) -> None:
    await server.answer(asked, OK)
    await asyncio.sleep(0.05)
    await line.reply(202, b"Accepted", "text/plain")

"""A raw HTTP peer for transport tests: a script answers each request, byte for byte."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """One request as it arrived."""

    verb: str
    path: str
    headers: dict[str, str]
    message: Any
    #: of the requests on its connection
    number: int = 1

    @property
    def method(self) -> str:
        return str(self.message.get("method", "")) if isinstance(self.message, dict) else ""

    @property
    def id(self) -> Any:
        return self.message.get("id") if isinstance(self.message, dict) else None


@dataclass
class Peer:
    url: str
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    #: set when the client closes the connection of a script that hangs
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    server: asyncio.Server | None = None

    def refuse(self) -> None:
        """Accept no more connections. Those that are open stay."""
        assert self.server is not None
        self.server.close()

    def methods(self) -> list[str]:
        return [one.method or one.verb for one in self.asked]

    def count(self, method: str) -> int:
        return self.methods().count(method)


class Line:
    """The connection of the current request, which a script writes to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: Peer) -> None:
        self._reader, self._writer, self._peer = reader, writer, peer

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def reply(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Some Reason", f"Content-Length: {len(body)}"]
        lines += [f"Content-Type: {kind}"] if kind else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.reply(status, json.dumps(value).encode(), **headers)

    async def result(self, asked: Asked, result: Any, **headers: str) -> None:
        await self.json({"jsonrpc": "2.0", "id": asked.id, "result": result}, **headers)

    async def error(self, asked: Asked, code: int, status: int = 200, data: Any = None) -> None:
        body = {"code": code, "message": f"error {code}"} | ({"data": data} if data is not None else {})
        await self.json({"jsonrpc": "2.0", "id": asked.id, "error": body}, status)

    async def stream(self) -> None:
        await self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def event(self, message: Any = None, *, id: str = "", retry: int | None = None, text: str = "") -> None:
        lines = [f"id: {id}"] if id else []
        lines += [f"retry: {retry}"] if retry is not None else []
        lines += [f"data: {json.dumps(message)}" if message is not None else text or "data:"]
        await self.chunk(("\n".join(lines) + "\n\n").encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def hang(self) -> None:
        """Answer nothing until the client closes the connection."""
        await self._reader.read(1)
        self._peer.hung_up.set()

    def reset(self) -> None:
        """Cut the connection with a TCP reset."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Asked, Line], Awaitable[None]]


@asynccontextmanager
async def scripted_http(script: Script, host: str = "127.0.0.1", port: int = 0, **how: Any) -> AsyncIterator[Peer]:
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        peer.connections += 1
        number = 0
        try:
            while (asked := await _read(reader)) is not None:
                number += 1
                asked.number = number
                peer.asked.append(asked)
                await script(asked, Line(reader, writer, peer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client disconnected, or the test is over
        finally:
            handlers.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, host, port, **how)
    peer = Peer(f"http://{host}:{server.sockets[0].getsockname()[1]}/mcp", server=server)
    try:
        yield peer
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    verb, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(verb, path, headers, _message(body))


def _message(body: bytes) -> Any:
    """The body as JSON; anything else (a form) as text."""
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode()


INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}},
    "serverInfo": {"name": "scripted", "version": "1"},
}


def legacy(on_call: Script, *, session: str = "", on_get: Script | None = None) -> Script:
    """A correct legacy server; the test answers `tools/call` and GET."""

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await (on_get(asked, line) if on_get else line.reply(405, kind=""))
        elif asked.verb == "DELETE":
            await line.reply(204, kind="")
        elif asked.method == "initialize":
            headers = {"Mcp_Session_Id": session} if session else {}
            await line.result(asked, INITIALIZED, **headers)
        elif asked.method == "tools/call":
            await on_call(asked, line)
        elif asked.method == "ping":
            await line.result(asked, {})
        elif asked.method == "tools/list":
            await line.result(asked, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        elif asked.id is None:
            await line.reply(202, kind="")
        else:
            await line.error(asked, -32601)

    return script


def modern(on_call: Script, tools: list[dict[str, Any]] | None = None) -> Script:
    """A correct modern server; the test answers `tools/call`."""

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "server/discover":
            capabilities = {"tools": {}}
            await line.result(asked, {"supportedVersions": ["2026-07-28"], "capabilities": capabilities})
        elif asked.method == "tools/list":
            await line.result(asked, {"tools": tools or []})
        elif asked.method == "tools/call":
            await on_call(asked, line)
        else:
            await line.error(asked, -32601, 404)

    return script

"""A small MCP server of both eras that records its own effects. Standard library only, starts in 0.1 s.

python effect_peer.py stdio|http [--era legacy|modern] [--effects FILE] [--port N] [--flaps N]

effect {id, seconds}   one durable line "<id> TAB <trace id or -> TAB <pid>" before it waits and answers
flood {seconds, rate}  up to `rate` log messages a second, as fast as the client takes them; the result is their number

With `--flaps N`, the first N lives end on their own: every other one before any output, the rest after they have listed
their tools. Each life leaves a line "life" in FILE. Over HTTP, the server prints its URL on stderr.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

Json = dict[str, Any]
Tell = Callable[[Json], Awaitable[None]]
NUMBER, TEXT = {"type": "number"}, {"type": "string"}
TOOLS = [
    {
        "name": "effect",
        "inputSchema": {"type": "object", "properties": {"id": TEXT, "seconds": NUMBER}, "required": ["id"]},
    },
    {"name": "flood", "inputSchema": {"type": "object", "properties": {"seconds": NUMBER, "rate": NUMBER}}},
]
INFO = {"name": "effects", "version": "1"}
#: messages of a flood between two looks at the clock
BURST = 100
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)


class Ledger:
    def __init__(self, path: str) -> None:
        self._path = path

    def note(self, line: str) -> None:
        """The line is on disk when this returns."""
        if not self._path:
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{line}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def count(self, word: str) -> int:
        with open(self._path, encoding="utf-8") as file:
            return sum(line.startswith(word) for line in file)


class Server:
    def __init__(self, era: str, ledger: Ledger) -> None:
        self._modern, self._ledger = era == "modern", ledger

    async def answer(self, asked: Json, tell: Tell) -> Json | None:
        """Return the response; None for a notification. `tell` sends notifications before the response."""
        if "id" not in asked or "method" not in asked:
            return None
        result = await self._result(asked["method"], asked.get("params") or {}, tell)
        if result is None:
            return {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "Method not found"}}
        return {"jsonrpc": "2.0", "id": asked["id"], "result": result}

    async def _result(self, method: str, params: Json, tell: Tell) -> Json | None:
        if method == "tools/call":
            return self._complete({"content": [{"type": "text", "text": await self._call(params, tell)}]})
        if method == "tools/list":
            return self._complete({"tools": TOOLS})
        if self._modern and method == "server/discover":
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "logging": {}}}
            return self._complete(found | {"serverInfo": INFO})
        if not self._modern and method == "initialize":
            version = params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}, "logging": {}}, "serverInfo": INFO}
        return {} if method == "ping" and not self._modern else None

    def _complete(self, result: Json) -> Json:
        return (
            {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private", **result} if self._modern else result
        )

    async def _call(self, params: Json, tell: Tell) -> str:
        given = params.get("arguments") or {}
        if params["name"] == "flood":
            return await _flood(float(given.get("seconds", 1)), float(given.get("rate", 10_000)), tell)
        trace = str((params.get("_meta") or {}).get("traceparent") or "-")
        self._ledger.note(f"{given['id']}\t{trace.split('-')[1] if '-' in trace[1:] else '-'}\t{os.getpid()}")
        await asyncio.sleep(float(given.get("seconds", 0)))
        return str(given["id"])


async def _flood(seconds: float, rate: float, tell: Tell) -> str:
    clock = asyncio.get_running_loop().time
    began, sent = clock(), 0
    while clock() < began + seconds:
        for number in range(sent, sent + BURST):
            params = {"level": "info", "data": f"line {number}"}
            await tell({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        sent += BURST
        await asyncio.sleep(max(0.0, began + sent / rate - clock()))
    return str(sent)


# --- stdio -------------------------------------------------------------------------------------------------------------
async def serve_stdio(server: Server, flap: bool) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        asked = json.loads(line)
        task = asyncio.create_task(_reply(server, asked))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        if flap and asked.get("method") == "tools/list":
            await task
            os._exit(1)


async def _reply(server: Server, asked: Json) -> None:
    if (answer := await server.answer(asked, _say)) is not None:
        await _say(answer)


async def _say(message: Json) -> None:
    """Blocks while the reader of the pipe is slow, as most servers do."""
    left = memoryview(json.dumps(message).encode() + b"\n")
    while left:
        left = left[os.write(1, left) :]


# --- HTTP --------------------------------------------------------------------------------------------------------------
_sessions = count(1)


async def serve_http(server: Server, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                await _respond(server, head, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    await listening.serve_forever()


async def _respond(server: Server, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
    if not head.startswith(b"POST"):
        status = b"204 No Content" if head.startswith(b"DELETE") else b"405 Method Not Allowed"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)
        return await writer.drain()
    asked = json.loads(body)
    if (asked.get("params") or {}).get("name") == "flood":
        return await _stream(server, asked, writer)
    answer = await server.answer(asked, _nobody_hears)
    if answer is None:
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    else:
        text = json.dumps(answer).encode()
        session = b"Mcp-Session-Id: %d\r\n" % next(_sessions) if asked["method"] == "initialize" else b""
        kind = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        writer.write(kind + session + b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
    await writer.drain()


async def _stream(server: Server, asked: Json, writer: asyncio.StreamWriter) -> None:
    """Send log messages on the call's own event stream."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def event(message: Json) -> None:
        data = b"data: %b\n\n" % json.dumps(message).encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()

    answer = await server.answer(asked, event)
    if answer is not None:
        await event(answer)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _nobody_hears(message: Json) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", choices=["stdio", "http"])
    parser.add_argument("--era", choices=["legacy", "modern"], default="legacy")
    parser.add_argument("--effects", default=os.environ.get("EFFECT_LOG", ""))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--flaps", type=int, default=0)
    options = parser.parse_args()
    ledger, flap = Ledger(options.effects), False
    if options.flaps:
        ledger.note("life")
        life = ledger.count("life")
        flap = life <= options.flaps
        if flap and life % 2:
            sys.exit(1)
    server = Server(options.era, ledger)
    if options.transport == "stdio":
        asyncio.run(serve_stdio(server, flap))
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve_http(server, options.port))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(0)

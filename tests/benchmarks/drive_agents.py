"""Agents at an MCP endpoint over HTTP, as cheap as a client can be: one connection each, requests as prepared bytes.

python -m tests.benchmarks.drive_agents FILE, with a JSON object in FILE: `url`, `era` (legacy or modern), `tool`, and
`tokens`, which the agents use in turn (empty ones where the endpoint asks for none). Each line of stdin is a load that
uses the first `tokens` of them: {"doing": "call" | "list", "callers": 50, "seconds": 1.0, "tokens": 50}.
"""

import asyncio
import itertools
import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.load import TEXT, measured

VERSION = {"legacy": "2025-11-25", "modern": "2026-07-28"}
META = "io.modelcontextprotocol/"
REFUSED_SECONDS = 0.2
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id:\s*(\S+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)


class Connection:
    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname or "127.0.0.1", where.port or 80

    async def __aenter__(self) -> "Connection":
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def exchange(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, head and body."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head[9:12]), head, await self._body(head)

    async def _body(self, head: bytes) -> bytes:
        if (length := _LENGTH.search(head)) is not None:
            return await self.reader.readexactly(int(length[1]))
        if not _CHUNKED.search(head):
            return b""
        parts = []
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            parts.append((await self.reader.readexactly(size + 2))[:-2])
        await self.reader.readexactly(2)
        return b"".join(parts)


class Identity:
    """One token, and for the legacy era its session."""

    def __init__(self, url: str, era: str, tool: str, token: str) -> None:
        where, self._era, self._tool = urlsplit(url), era, tool
        self._numbers = itertools.count(1)
        self._head = (
            f"POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION[era]}\r\n"
        )
        self._head += f"Authorization: Bearer {token}\r\n" if token else ""

    def request(self, method: str, params: dict[str, Any]) -> bytes:
        head, named = self._head, ""
        if self._era == "modern":
            info = {"name": "benchmark", "version": "1"}
            meta = {"protocolVersion": VERSION["modern"], "clientCapabilities": {}, "clientInfo": info}
            params = params | {"_meta": {META + name: value for name, value in meta.items()}}
            named = f"Mcp-Method: {method}\r\n" + (f"Mcp-Name: {params['name']}\r\n" if "name" in params else "")
        body = json.dumps({"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params})
        return f"{head}{named}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    def call(self) -> bytes:
        return self.request("tools/call", {"name": self._tool, "arguments": {"text": TEXT}})

    def list(self) -> bytes:
        return self.request("tools/list", {})

    async def open(self, connection: Connection) -> None:
        if self._era == "modern":
            return
        info = {"name": "benchmark", "version": "1"}
        params = {"protocolVersion": VERSION["legacy"], "capabilities": {}, "clientInfo": info}
        status, head, body = await connection.exchange(self.request("initialize", params))
        session = _SESSION.search(head)
        if status != 200 or session is None:
            raise RuntimeError(f"initialize: {status} {body[:300]!r}")
        self._head += f"Mcp-Session-Id: {session[1].decode()}\r\n"
        told = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await connection.exchange(f"{self._head}Content-Length: {len(told)}\r\n\r\n{told}".encode())


class Load:
    def __init__(self, url: str, identities: list[Identity]) -> None:
        self._url, self._identities = url, identities

    async def run(self, doing: str, callers: int, seconds: float, tokens: int) -> dict[str, float]:
        latencies: list[float] = []
        turns = itertools.cycle(self._identities[:tokens])
        refused = 0
        clock, note = time.perf_counter, latencies.append
        cpu, began = time.process_time(), clock()
        ends = began + seconds
        wanted = TEXT.encode() if doing == "call" else b'"inputSchema"'

        async def caller() -> None:
            nonlocal refused
            async with Connection(self._url) as connection:
                while clock() < ends:
                    one = next(turns)
                    request = one.call() if doing == "call" else one.list()
                    sent = clock()
                    status, _, body = await connection.exchange(request)
                    if status == 429:
                        refused += 1
                        await asyncio.sleep(REFUSED_SECONDS)
                    elif wanted in body:
                        note(clock() - sent)
                    else:
                        raise RuntimeError(f"{doing}: {status} {body[:300]!r}")

        await asyncio.gather(*(caller() for _ in range(callers)))
        return measured(latencies, clock() - began, time.process_time() - cpu) | {"refused": refused}


async def main(given: dict[str, Any]) -> None:
    url = given["url"]
    identities = [Identity(url, given["era"], given["tool"], token) for token in given["tokens"]]
    async with Connection(url) as connection:
        for one in identities:
            await one.open(connection)
    load = Load(url, identities)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await load.run(**json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))

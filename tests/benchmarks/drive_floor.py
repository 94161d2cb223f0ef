"""Measures the minimum cost of a client: the same bytes over the same wire, without MCP.

python -m tests.benchmarks.drive_floor KIND legacy|modern COMMAND... | URL

KIND: `pipes` (blocking reads and writes, as many lines in flight as callers), `asyncio-pipes` (a future and orjson per
call), `engine` (the HTTP engine's transport alone), `httpx+aiohttp` (httpx.AsyncClient on that engine), `httpx`
(stock).
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson

from sessions.mcp.core.capabilities import Implementation, request_meta
from sessions.mcp.core.headers import request_headers
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.versions import PREFERRED_LEGACY, PREFERRED_MODERN
from sessions.mcp.transports.engine import engine, shared_tls
from tests.benchmarks.load import TEXT, measured, obey
from tests.sessions.mcp.transports.making import LOCAL

Call = Callable[[], Awaitable[Any]]


def params(era: str) -> dict[str, Any]:
    body: dict[str, Any] = {"name": "echo", "arguments": {"text": TEXT}}
    if era == "modern":
        body["_meta"] = request_meta(PREFERRED_MODERN, Implementation("test", "1"), {})
    return body


def request(identity: int, era: str) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params(era)})


def headers(era: str) -> dict[str, str]:
    common = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    common |= {"Accept-Encoding": "identity", "User-Agent": "floor"}
    if era == "modern":
        return common | request_headers("tools/call", params(era), PREFERRED_MODERN)
    return common | {"MCP-Protocol-Version": PREFERRED_LEGACY, "Mcp-Session-Id": "1"}


# -- stdio


def pipes(line: bytes, child: "subprocess.Popen[bytes]", callers: int, seconds: float) -> dict[str, float]:
    assert child.stdin is not None
    assert child.stdout is not None
    source, sink = child.stdout.fileno(), child.stdin.fileno()
    clock, latencies, sent = time.perf_counter, [], deque[float]()
    cpu, began = time.process_time(), clock()
    due = callers
    while due or sent:
        if due:
            sent.extend([clock()] * due)
            os.write(sink, line * due)
        answered = os.read(source, 1 << 16).count(b"\n")
        now = clock()
        latencies += [now - sent.popleft() for _ in range(answered)]
        due = answered if now < began + seconds else 0
    return measured(latencies, clock() - began, time.process_time() - cpu)


def drive_pipes(era: str, command: tuple[str, ...]) -> None:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        line = request(1, era) + b"\n"
        for wanted in map(json.loads, sys.stdin):
            print(json.dumps(pipes(line, child, wanted["callers"], wanted["seconds"])), flush=True)


class _Lines(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self._rest = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            answer = orjson.loads(line)
            self.waiting.pop(answer["id"]).set_result(answer["result"])


@asynccontextmanager
async def asyncio_pipes(era: str, command: tuple[str, ...]) -> AsyncIterator[Call]:
    loop = asyncio.get_running_loop()
    transport, lines = await loop.subprocess_exec(_Lines, *command, stderr=None)
    stdin: Any = transport.get_pipe_transport(0)
    identity = 0

    async def call() -> Any:
        nonlocal identity
        identity += 1
        lines.waiting[identity] = future = loop.create_future()
        stdin.write(request(identity, era) + b"\n")
        return await future

    try:
        yield call
    finally:
        stdin.close()
        await transport._wait()
        transport.close()


# -- HTTP


@asynccontextmanager
async def engine_alone(era: str, where: tuple[str, ...]) -> AsyncIterator[Call]:
    transport, url, sent = _engine(), httpx.URL(where[0]), headers(era)

    async def call() -> Any:
        response = await transport.handle_async_request(
            httpx.Request("POST", url, headers=sent, content=request(1, era))
        )
        return _body_of(await response.aread())

    async with transport:
        yield call


def _engine() -> httpx.AsyncBaseTransport:
    return engine(LOCAL, Limits(), shared_tls(), timeout=10)


@asynccontextmanager
async def through_httpx(
    era: str, where: tuple[str, ...], transport: httpx.AsyncBaseTransport | None
) -> AsyncIterator[Call]:
    limits = httpx.Limits(max_connections=256, max_keepalive_connections=256)
    async with httpx.AsyncClient(transport=transport, timeout=60, limits=limits, trust_env=False) as client:
        sent = headers(era)

        async def call() -> Any:
            response = await client.post(where[0], headers=sent, content=request(1, era))
            return _body_of(response.content)

        yield call


def _body_of(content: bytes) -> Any:
    """Parse a JSON body, or the last data line of an event stream."""
    if content.startswith(b"{"):
        return orjson.loads(content)["result"]
    return orjson.loads(content[content.rindex(b"data:") + 5 :])["result"]


async def main(kind: str, era: str, where: tuple[str, ...]) -> None:
    made = {
        "asyncio-pipes": lambda: asyncio_pipes(era, where),
        "engine": lambda: engine_alone(era, where),
        "httpx+aiohttp": lambda: through_httpx(era, where, _engine()),
        "httpx": lambda: through_httpx(era, where, None),
    }[kind]()
    async with made as call:
        await obey(call)


if __name__ == "__main__":
    if sys.argv[1] == "pipes":
        drive_pipes(sys.argv[2], tuple(sys.argv[3:]))
    else:
        asyncio.run(main(sys.argv[1], sys.argv[2], tuple(sys.argv[3:])))

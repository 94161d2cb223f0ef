"""A scripted hostile peer over HTTP: Streamable HTTP, HTTP+SSE and WebSocket by hand. Standard library only.

    python -m tests.peers.hostile.hostile_http      prints its base URL on stderr when ready

POST /json/<scenario>       Streamable HTTP; replies are JSON bodies
POST /stream/<scenario>     Streamable HTTP; replies to calls are event streams
GET  /sse/<scenario>        HTTP+SSE of 2024-11-05
GET  /ws/<scenario>         WebSocket
GET  /bait                  what nobody may ask for; GET /seen counts it

The scenarios of calls.py and lists.py, and those of plays.py.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

from . import frames, messages
from .messages import KIB, MIB, Big, Said
from .plays import BODIES, CHUNKED, CLOSING, FRAMES, JSON, STREAM, Wire, pieces
from .server import Hostile

#: verb, path, headers, body
Asked = tuple[str, str, dict[str, str], bytes]


class Server:
    def __init__(self) -> None:
        self.bait = 0
        self._hostiles: dict[str, Hostile] = {}
        self._streams: dict[str, Wire] = {}
        self._playing: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        try:
            while (asked := await _read(reader)) is not None:
                await self._route(wire, asked)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away: what most scenarios end with
        finally:
            writer.close()

    async def _route(self, wire: Wire, asked: Asked) -> None:
        verb, path, headers, body = asked
        kind, _, scenario = path.strip("/").partition("/")
        if kind == "bait":
            self.bait += 1
            await wire.reply("200 OK")
        elif kind == "seen":
            await wire.reply("200 OK", json.dumps({"bait": self.bait}).encode())
        elif kind == "sse" and verb == "GET":
            await self._open_stream(wire, scenario)
        elif kind == "ws":
            await self._open_socket(wire, scenario, headers)
        elif verb != "POST":
            await wire.reply("405 Method Not Allowed")
        elif kind == "post":
            await self._posted(wire, scenario, json.loads(body))
        else:
            await self._exchange(wire, kind, scenario, json.loads(body))

    def _hostile(self, scenario: str) -> Hostile:
        return self._hostiles.setdefault(scenario, Hostile(scenario))

    async def _exchange(self, wire: Wire, kind: str, scenario: str, message: dict[str, Any]) -> None:
        hostile = self._hostile(scenario)
        if scenario in BODIES and hostile.evil(message):
            await BODIES[scenario](wire)
            return
        answers = hostile.answers(message)
        if "id" not in message or "method" not in message:
            list(answers)
            await wire.reply("202 Accepted")
        elif kind == "stream" and message["method"] == "tools/call":
            await wire.raw(STREAM, CHUNKED)
            async for block in _blocks(answers):
                if block:
                    await wire.chunk(block)
            await wire.raw(b"0\r\n\r\n")
        else:
            await wire.raw(JSON, CHUNKED)
            for said in answers:
                for piece in pieces(said):
                    await wire.chunk(piece)
            await wire.raw(b"0\r\n\r\n")

    # -- HTTP+SSE

    async def _open_stream(self, wire: Wire, scenario: str) -> None:
        key = f"{scenario}/{len(self._streams)}"
        self._streams[key] = wire
        await wire.raw(STREAM, CLOSING, f"event: endpoint\ndata: /post/{key}\n\n".encode())
        await wire.reader.read()

    async def _posted(self, wire: Wire, key: str, message: dict[str, Any]) -> None:
        await wire.reply("202 Accepted")
        scenario = key.partition("/")[0]
        hostile, stream = self._hostile(scenario), self._streams[key]
        if hostile.evil(message) and scenario in BODIES:
            play = BODIES[scenario](_Headless(stream.reader, stream.writer))
        else:
            play = _tell(stream, hostile.answers(message))
        self._begin(play)  # the connection of the POST is the client's to use again

    def _begin(self, play: Awaitable[None]) -> None:
        self._playing.add(asyncio.create_task(_unless_closed(play)))

    # -- WebSocket

    async def _open_socket(self, wire: Wire, scenario: str, headers: dict[str, str]) -> None:
        key = frames.accept(headers["sec-websocket-key"])
        await wire.raw(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: mcp\r\n" + f"Sec-WebSocket-Accept: {key}\r\n\r\n".encode()
        )
        hostile = self._hostile(scenario)
        async for text in frames.messages(wire.reader):
            message = json.loads(text)
            if scenario in FRAMES and hostile.evil(message):
                self._begin(FRAMES[scenario](wire))
            elif hostile.evil(message):
                self._begin(_say_all(wire, hostile.answers(message)))
            else:
                await _say_all(wire, hostile.answers(message))
        raise ConnectionError("the client closed the WebSocket")


async def _tell(stream: Wire, answers: Iterator[Said]) -> None:
    async for block in _blocks(answers):
        await stream.raw(block)


async def _unless_closed(play: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionError):
        await play


async def _say_all(wire: Wire, answers: Iterator[Said]) -> None:
    for said in answers:
        await _say(wire, said)


async def _say(wire: Wire, said: Said) -> None:
    if isinstance(said, float):
        await asyncio.sleep(said)
        return
    await wire.raw(frames.head(frames.TEXT, said.size if isinstance(said, Big) else len(said)))
    for piece in pieces(said):
        await wire.raw(piece)


class _Headless(Wire):
    """A stream that is open already: what would be its head is left out."""

    async def raw(self, *data: bytes) -> None:
        await super().raw(*(part for part in data if part not in (STREAM, CLOSING)))


async def _blocks(answers: Iterator[Said]) -> AsyncIterator[bytes]:
    """Events, many small ones together."""
    waiting = b""
    for said in answers:
        if isinstance(said, float):
            yield waiting
            waiting = b""
            await asyncio.sleep(said)
        elif isinstance(said, Big):
            yield waiting + b"data: "
            for piece in said.pieces():
                yield piece
            waiting = b"\n\n"
        else:
            waiting += b"data: " + said + b"\n\n"
        if len(waiting) > 32 * KIB:
            yield waiting
            waiting = b""
    if waiting:
        yield waiting


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    verb, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return verb, path, headers, await reader.readexactly(int(headers.get("content-length", "0")))


async def main() -> None:
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0, limit=MIB)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    messages.BAIT = f"{base}/bait"
    print(base, file=sys.stderr, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

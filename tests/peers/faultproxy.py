"""A TCP proxy that breaks connections on demand: Toxiproxy's vocabulary (see toxics.py), both directions, at any time.

    async with FaultProxy("127.0.0.1", 8080) as proxy:
        proxy.add("latency", "upstream", latency=200, jitter=50)    # reached at proxy.port

proxied.py runs one in a separate process with a control port.
"""

import asyncio
import random
import socket
import struct
from contextlib import suppress
from types import TracebackType

from tests.peers.toxics import Stream, Toxic, closing_delay, late, pieces

CHUNK = 64 * 1024
QUEUE = 64
RESET = struct.pack("ii", 1, 0)


class FaultProxy:
    def __init__(self, host: str, port: int, *, seed: int = 0) -> None:
        self._to = (host, port)
        self.dice = random.Random(seed)
        self.toxics: dict[str, Toxic] = {}
        self.links: set[Link] = set()
        #: connections accepted since the start
        self.accepted = 0
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "FaultProxy":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen, on the same port as before. After `close` this simulates a server that returned."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuse new connections and reset the open ones."""
        if self._server is not None:
            self._server.close()
            self.cut()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._server.wait_closed(), 5)
            self._server = None

    def add(
        self, kind: str, stream: Stream = "downstream", name: str = "", toxicity: float = 1.0, **attributes: float
    ) -> str:
        """Add a toxic to all connections, open ones included. Returns its name."""
        return self.put(Toxic(kind, stream, name, toxicity, attributes))

    def put(self, toxic: Toxic) -> str:
        name = toxic.name or f"{toxic.kind}_{toxic.stream}"
        self.toxics[name] = Toxic(toxic.kind, toxic.stream, name, toxic.toxicity, toxic.attributes)
        self._changed()
        return name

    def remove(self, name: str) -> None:
        self.toxics.pop(name, None)
        self._changed()

    def clear(self) -> None:
        self.toxics.clear()
        self._changed()

    def cut(self) -> None:
        """Reset both sides of every open connection."""
        for link in list(self.links):
            link.reset()

    def _changed(self) -> None:
        for link in self.links:
            link.news()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = Link(self, writer)
        self.links.add(link)
        try:
            await link.run(reader, self._to)
        finally:
            self.links.discard(link)


class Link:
    """A connection from the client and its counterpart to the server."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self._proxy, self._writers = proxy, [client]
        self._luck = proxy.dice.random()
        self._over = asyncio.Event()
        self._changed = asyncio.Event()

    def news(self) -> None:
        self._changed.set()

    def toxics(self, stream: Stream) -> list[Toxic]:
        return [one for one in self._proxy.toxics.values() if one.stream == stream and self._luck < one.toxicity]

    async def run(self, reader: asyncio.StreamReader, to: tuple[str, int]) -> None:
        ending = asyncio.create_task(self._ended_by_toxic())
        try:
            server_reader, server_writer = await asyncio.open_connection(*to)
        except OSError:
            self.reset()
        else:
            self._writers.append(server_writer)
            await self._carry(reader, server_reader, ending)
        finally:
            ending.cancel()
            for writer in self._writers:
                writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, server: asyncio.StreamReader, ending: "asyncio.Task[None]"
    ) -> None:
        up = asyncio.create_task(Pump(self, "upstream", self._proxy.dice).run(reader, self._writers[1]))
        down = asyncio.create_task(Pump(self, "downstream", self._proxy.dice).run(server, self._writers[0]))
        over = asyncio.create_task(self._over.wait())
        both = asyncio.gather(up, down, return_exceptions=True)
        await asyncio.wait({both, over, ending}, return_when=asyncio.FIRST_COMPLETED)
        for task in (up, down, over):
            task.cancel()
        await asyncio.wait({up, down, over})

    async def _ended_by_toxic(self) -> None:
        """Return when a toxic ends this connection."""
        while True:
            self._changed.clear()
            toxics = self.toxics("upstream") + self.toxics("downstream")
            ends = [one for one in toxics if one.kind == "reset_peer" or (one.kind == "timeout" and one["timeout"])]
            first = min(ends, key=lambda one: one["timeout"], default=None)
            try:
                await asyncio.wait_for(self._changed.wait(), first["timeout"] / 1000 if first else None)
            except TimeoutError:
                if first is not None and first.kind == "reset_peer":
                    self.reset()
                return

    def over(self) -> None:
        """End the connection, which closes both sides."""
        self._over.set()

    def reset(self) -> None:
        for writer in self._writers:
            raw = writer.get_extra_info("socket")
            with suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        self.over()


class Pump:
    """One direction of a link. It keeps reading while chunks are delayed, so that latency costs no throughput."""

    def __init__(self, link: Link, stream: Stream, dice: random.Random) -> None:
        self._link, self._stream, self._dice = link, stream, dice
        self._passed = 0

    async def run(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE)
        reading = asyncio.create_task(self._read(source, chunks))
        try:
            while await self._pass_on(*(await chunks.get()), sink):
                pass
        except OSError:
            self._link.over()
        finally:
            reading.cancel()

    async def _read(self, source: asyncio.StreamReader, chunks: "asyncio.Queue[tuple[float, bytes]]") -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = await source.read(CHUNK)
            except OSError:
                chunk = b""
            await chunks.put((asyncio.get_running_loop().time(), chunk))

    async def _pass_on(self, came: float, chunk: bytes, sink: asyncio.StreamWriter) -> bool:
        """Return False when this direction has ended."""
        toxics = self._link.toxics(self._stream)
        await asyncio.sleep(max(0.0, came + late(toxics, self._dice) - asyncio.get_running_loop().time()))
        if any(one.kind == "timeout" for one in toxics):
            return True  # swallow the chunk, and the end of the stream too
        if not chunk:
            await asyncio.sleep(closing_delay(toxics))
            return self._end(sink)
        left = min((int(one["bytes"]) for one in toxics if one.kind == "limit_data"), default=None)
        if left is not None:
            chunk = chunk[: max(0, left - self._passed)]
        await self._write(chunk, toxics, sink)
        if left is not None and self._passed >= left:
            self._link.over()
            return False
        return True

    async def _write(self, chunk: bytes, toxics: list[Toxic], sink: asyncio.StreamWriter) -> None:
        for piece, pause in pieces(chunk, toxics, self._dice):
            sink.write(piece)
            self._passed += len(piece)
            await sink.drain()
            await asyncio.sleep(pause)

    def _end(self, sink: asyncio.StreamWriter) -> bool:
        with suppress(OSError):
            if sink.can_write_eof():
                sink.write_eof()
        return False

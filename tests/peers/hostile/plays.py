"""What only bytes can do: answers of HTTP and frames of WebSocket to the evil call. Standard library only."""

import asyncio
import gzip
import itertools
from collections.abc import Awaitable, Callable, Iterable

from . import frames
from .messages import KIB, MIB, Big, Said

OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"Content-Type: application/json\r\n"
STREAM = OK + b"Content-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CLOSING = b"Connection: close\r\n\r\n"


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def raw(self, *data: bytes) -> None:
        self.writer.writelines(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n" % len(data), data, b"\r\n")

    async def reply(self, status: str, body: bytes = b"", kind: str = "application/json") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        await self.raw(head.encode(), body)


Play = Callable[[Wire], Awaitable[None]]


def pieces(said: Said) -> Iterable[bytes]:
    if isinstance(said, Big):
        return said.pieces()
    return (said,) if isinstance(said, bytes) else ()


# -- raw bytes: the response to the evil call, over Streamable HTTP


async def silence(wire: Wire) -> None:
    await wire.reader.read(1)


async def endless_body(wire: Wire) -> None:
    await wire.raw(JSON, CHUNKED)
    await wire.chunk(b'{"jsonrpc":"2.0","result":{"text":"')
    while True:
        await wire.chunk(b"x" * MIB)


async def one_byte_at_a_time(wire: Wire) -> None:
    await wire.raw(JSON, CHUNKED)
    while True:
        await wire.chunk(b" ")
        await asyncio.sleep(0.02)


async def head_byte_at_a_time(wire: Wire) -> None:
    await wire.raw(JSON, b"X-Slow: ")
    while True:
        await wire.raw(b"x")
        await asyncio.sleep(0.02)


def _zeros(size: int) -> bytes:
    return gzip.compress(b"0" * size)


async def bomb(wire: Wire) -> None:
    """1 MB that inflates to 1 GiB."""
    await wire.raw(JSON, b"Content-Encoding: gzip\r\n", CLOSING)
    block = _zeros(64 * MIB)
    for _ in range(16):
        await wire.raw(block)


async def small_bomb(wire: Wire) -> None:
    """Below the limit of the size; only its ratio tells."""
    await wire.raw(JSON, b"Content-Encoding: gzip\r\n", CLOSING, _zeros(4 * MIB))
    wire.writer.close()


async def stream_bomb(wire: Wire) -> None:
    await wire.raw(STREAM, b"Content-Encoding: gzip\r\n", CLOSING, gzip.compress(b": " + b"0" * (64 * MIB)))


async def other_encoding(wire: Wire) -> None:
    await wire.raw(JSON, b"Content-Encoding: br\r\n", CLOSING, b"\x8b\x05\x80" * 100)
    wire.writer.close()


async def many_headers(wire: Wire) -> None:
    await wire.raw(OK)
    for number in range(100_000):
        await wire.raw(b"X-%d: a\r\n" % number)
    await wire.raw(b"\r\n")


async def wide_header(wire: Wire) -> None:
    await wire.raw(OK, b"X-Wide: ", b"a" * MIB, b"\r\n\r\n")


async def endless_header(wire: Wire) -> None:
    await wire.raw(OK, b"X-Wide: ")
    while True:
        await wire.raw(b"a" * 64 * KIB)


async def endless_status(wire: Wire) -> None:
    await wire.raw(b"HTTP/1.1 200 ")
    while True:
        await wire.raw(b"a" * 64 * KIB)


async def endless_interim(wire: Wire) -> None:
    """Provisional answers without end."""
    while True:
        await wire.raw(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 100)
        await asyncio.sleep(0.01)


async def endless_chunk_head(wire: Wire) -> None:
    await wire.raw(JSON, CHUNKED, b"1;")
    while True:
        await wire.raw(b"a" * 64 * KIB)


async def endless_trailer(wire: Wire) -> None:
    await wire.raw(JSON, CHUNKED, b"2\r\n{}\r\n0\r\n")
    for number in itertools.count():
        await wire.raw(b"X-%d: " % number + b"a" * KIB + b"\r\n")


async def comments(wire: Wire) -> None:
    await wire.raw(STREAM, CLOSING)
    while True:
        await wire.raw(b": ping\n\n" * 8 * KIB)


async def slow_comments(wire: Wire) -> None:
    await wire.raw(STREAM, CLOSING)
    while True:
        await wire.raw(b": ping\n\n")
        await asyncio.sleep(0.05)


async def empty_events(wire: Wire) -> None:
    await wire.raw(STREAM, CLOSING)
    for number in itertools.count():
        await wire.raw(b"id: %d\n\n" % number * 4 * KIB)


async def giant_event(wire: Wire) -> None:
    await wire.raw(STREAM, CLOSING, b"data: ")
    while True:
        await wire.raw(b"x" * MIB)


async def many_data_lines(wire: Wire) -> None:
    await wire.raw(STREAM, CLOSING)
    while True:
        await wire.raw(b"data:\n" * 16 * KIB)


BODIES: dict[str, Play] = {
    play.__name__.replace("_", "-"): play
    for play in (
        silence, endless_body, one_byte_at_a_time, head_byte_at_a_time, bomb, small_bomb, stream_bomb, other_encoding,
        many_headers, wide_header, endless_header, endless_status, endless_interim, endless_chunk_head, endless_trailer,
        comments, slow_comments, empty_events, giant_event, many_data_lines,
    )
}  # fmt: skip

# -- the same on a WebSocket


async def endless_fragments(wire: Wire) -> None:
    await wire.raw(frames.frame(frames.TEXT, b"{", final=False))
    while True:
        await wire.raw(frames.frame(frames.CONTINUATION, b"x" * 64 * KIB, final=False))


async def ws_bomb(wire: Wire) -> None:
    await wire.raw(frames.frame(frames.TEXT, b"\xec\xc1\x01\x01" * 100, compressed=True))


async def giant_frame_head(wire: Wire) -> None:
    await wire.raw(frames.head(frames.TEXT, 2**62))
    while True:
        await wire.raw(b"x" * MIB)


async def binary_frame(wire: Wire) -> None:
    await wire.raw(frames.frame(frames.BINARY, b"{}"))


async def ws_pings(wire: Wire) -> None:
    """Pings of the WebSocket protocol without end, and nothing else."""
    while True:
        await wire.raw(frames.frame(frames.PING, b"p" * 100) * 100)
        await asyncio.sleep(0.01)


FRAMES: dict[str, Play] = {
    play.__name__.replace("_", "-"): play
    for play in (silence, endless_fragments, ws_bomb, giant_frame_head, binary_frame, ws_pings)
}

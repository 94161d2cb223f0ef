"""WebSocket frames by hand (RFC 6455): a library would refuse to send what a hostile peer sends."""

import asyncio
import base64
import hashlib
import struct
from collections.abc import AsyncIterator

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept(key: str) -> str:
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def head(opcode: int, size: int, *, final: bool = True, compressed: bool = False) -> bytes:
    first = (0x80 if final else 0) | (0x40 if compressed else 0) | opcode
    if size < 126:
        return struct.pack("!BB", first, size)
    if size < 65536:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)


def frame(opcode: int, data: bytes, *, final: bool = True, compressed: bool = False) -> bytes:
    return head(opcode, len(data), final=final, compressed=compressed) + data


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Text messages of the client, which sends each whole; until it says goodbye."""
    while True:
        first, second = await reader.readexactly(2)
        size = second & 0x7F
        if size >= 126:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
        mask = await reader.readexactly(4)
        data = await reader.readexactly(size)
        if first & 0x0F == CLOSE:
            return
        if first & 0x0F == TEXT:
            yield _unmasked(data, mask)


def _unmasked(data: bytes, mask: bytes) -> bytes:
    pattern = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(pattern, "big")).to_bytes(len(data), "big")

"""Probes whether a server responds at a path, without using our client."""

import asyncio
from urllib.parse import urlsplit

SECONDS = 20.0
_UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mcp\r\n"
)


async def is_offered(url: str, *, websocket: bool) -> bool:
    """A WebSocket must be accepted (101). Over HTTP, any status except 404 counts."""
    status = await _status(url, _UPGRADE if websocket else "Connection: close\r\n")
    return status == 101 if websocket else status != 404


async def _status(url: str, headers: str) -> int:
    parts = urlsplit(url)
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            lines = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n{headers}\r\n"
            writer.write(lines.encode())
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()

"""When a part may be called ready: it did what it is for once, not merely started."""

import asyncio
from pathlib import Path

from mcpadmin.up import valkey
from mcpadmin.up.options import WILDCARDS

RETRY_SECONDS = 0.02


async def valkey_answers(socket: Path) -> None:
    while not await valkey.ping(socket):  # noqa: ASYNC110 - an unbound socket offers nothing to wait on
        await asyncio.sleep(RETRY_SECONDS)


async def web_answers(host: str, port: int) -> None:
    """The listening socket is ours and open already, so one request normally waits until the web process takes it."""
    while not await _healthy(WILDCARDS.get(host, host), port):  # noqa: ASYNC110 - only after a web process died under the request
        await asyncio.sleep(RETRY_SECONDS)


async def _healthy(host: str, port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await asyncio.wait_for(reader.readline(), 30)).split(b" ")[1:2] == [b"200"]
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()

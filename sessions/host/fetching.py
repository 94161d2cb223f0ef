"""One GET request to an address from an untrusted source: guarded, bounded, without cookies or credentials, without
redirects."""

import asyncio
from contextlib import suppress
from typing import Final

import httpx

from sessions.connections.icons import Fetched
from sessions.host.outbound import egress_policy
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.limits import Limits
from sessions.mcp.transports.base import translated
from sessions.mcp.transports.engine import engine, shared_tls

SECONDS: Final = 10.0
#: aiohttp would request compressed answers by itself, and nothing here decompresses one
_HEADERS: Final = {"Accept-Encoding": "identity", "User-Agent": "mcpadmin"}


async def fetch(url: str, accept: str, most: int) -> Fetched:
    """Fetch an https URL. Reads at most one byte more than `most`, so that the caller can tell that it is too long."""
    try:
        async with asyncio.timeout(SECONDS):
            return await _get(url, accept, most)
    except TimeoutError:
        return Fetched(problem=f"It did not arrive within {SECONDS:g} s.")
    except McpError as error:
        return Fetched(problem=error.detail)
    except (httpx.InvalidURL, ValueError):
        return Fetched(problem="Its address is not a URL.")


async def _get(url: str, accept: str, most: int) -> Fetched:
    getting = engine(egress_policy(), Limits(http_connections=1), shared_tls(), timeout=SECONDS)
    try:
        with translated():
            response = await getting.handle_async_request(
                httpx.Request("GET", url, headers=_HEADERS | {"Accept": accept})
            )
        try:
            if response.status_code != 200:
                return Fetched(problem=f"Its address answered with HTTP {response.status_code}.")
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                return Fetched(problem="Its address compressed the answer, which was not requested.")
            return Fetched(await _body(response, most))
        finally:
            with suppress(McpError), translated():
                await response.aclose()
    finally:
        await getting.aclose()


async def _body(response: httpx.Response, most: int) -> bytes:
    data = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  the engine is asynchronous
    with translated():
        async for chunk in response.stream:
            data += chunk
            if len(data) > most:
                break
    return bytes(data[: most + 1])

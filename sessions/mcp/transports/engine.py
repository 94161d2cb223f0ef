"""The HTTP engine: httpx's transport interface, with aiohttp under it.

Requests use the transport directly, without httpx.AsyncClient. So there are no cookies, redirects, environment settings
or authentication behind our back, and a call costs half as much. For the cookies of a session see cookies.py.
"""

import functools
import ssl
from collections.abc import Mapping

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from ..core.errors import Fault, NotReady
from ..core.limits import Limits
from .egress import Connector, OutboundPolicy, connector


@functools.cache
def shared_tls() -> ssl.SSLContext:
    """One context for the process: separate ones would cost 700 KiB per session."""
    return ssl.create_default_context()


class _Answer(aiohttp.ClientResponse):
    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Drop the reason phrase, which no one reads: httpx_aiohttp fails on one that is not UTF-8, and would lose the
        answer with it."""
        await super().start(connection)
        self.reason = ""
        return self


class Engine(AiohttpTransport):
    closed = False

    async def aclose(self) -> None:
        self.closed = True
        await super().aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises NotReady once it is closed, where aiohttp would raise a RuntimeError, or open connections that no one
        closes."""
        if self.closed:
            raise NotReady("The connection was closed before the request was sent.", Fault.CLOSED)
        return await super().handle_async_request(request)

    def stop_reusing(self) -> None:
        """From now on, use a new connection for each request."""
        if isinstance(self.client, aiohttp.ClientSession) and isinstance(self.client.connector, Connector):
            self.client.connector.stop_reusing()


def with_host(headers: Mapping[str, str], url: httpx.URL) -> httpx.Headers:
    """Add the Host header if it is missing: httpx would read `URL.host` for it (see dialing.wire_host)."""
    whole = httpx.Headers(headers)
    whole.setdefault("Host", url.netloc.decode("ascii"))
    return whole


def engine(policy: OutboundPolicy, limits: Limits, tls: ssl.SSLContext, *, timeout: float) -> Engine:
    """To change the engine, change the base of Engine. Any engine must take its sockets from egress.py."""

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector(policy, tls, timeout=timeout, connections=limits.http_connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
            response_class=_Answer,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.header_count,
        )

    return Engine(verify=tls, client=session)

"""The HTTP engine: httpx's transport interface, with aiohttp under it.

Requests use the transport directly, without httpx.AsyncClient. So there are no cookies, redirects, environment settings
or authentication behind our back, and a call costs half as much.
"""

import functools
import ssl

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from ..core.limits import Limits
from .egress import OutboundPolicy, connector


@functools.cache
def shared_tls() -> ssl.SSLContext:
    """One context for the process: separate ones would cost 700 KiB per session."""
    return ssl.create_default_context()


def engine(policy: OutboundPolicy, limits: Limits, tls: ssl.SSLContext, *, timeout: float) -> httpx.AsyncBaseTransport:
    """To change the engine, change this function's last line. Any engine must take its sockets from egress.py."""

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector(policy, tls, timeout=timeout, connections=limits.http_connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            max_headers=limits.header_count,
        )

    return AiohttpTransport(verify=tls, client=session)

"""The HTTP engine: httpx's transport interface, with aiohttp under it.

Requests go straight to the transport, not through httpx.AsyncClient: no cookies, no redirects, no environment,
no authentication happens behind our back, and half the cost of a call is saved.
"""

import functools
import ssl

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from ..protocol.limits import Limits
from .egress import Policy, connector


@functools.cache
def shared_tls() -> ssl.SSLContext:
    """One context for the process: each of its own would cost 700 KiB a session."""
    return ssl.create_default_context()


def engine(policy: Policy, limits: Limits, tls: ssl.SSLContext, *, timeout: float) -> httpx.AsyncBaseTransport:
    """Another engine is this function's last line (it must take its sockets from egress.py)."""

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

"""Looking before the first request: which addresses a URL leads to, and whether a connection can be made."""

import asyncio
import ipaddress
import socket
import ssl
from typing import Any

import httpx

from ..protocol.errors import Fault, McpError, TransportError
from .base import RefusedByPolicy, connect_error
from .egress import GuardedResolver, Policy, demand, socket_factory


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


async def addresses(url: httpx.URL, policy: Policy, timeout: float) -> list[str]:
    """The numeric addresses of the host, judged. Raises McpError (dns_failed, address_refused)."""
    return [str(info[4][0]) for info in await _infos(url, policy, timeout)]


async def _infos(url: httpx.URL, policy: Policy, timeout: float) -> list[Any]:
    host, port = url.host.removeprefix("[").removesuffix("]"), _port(url)
    try:
        if _is_literal(host):
            demand(host, port, policy)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return [(family, socket.SOCK_STREAM, 0, "", (host, port))]
        found = await GuardedResolver(policy, timeout).resolve(host, port)
    except (RefusedByPolicy, OSError) as exc:
        raise connect_error(exc) from exc
    return [(entry["family"], socket.SOCK_STREAM, entry["proto"], "", (entry["host"], port)) for entry in found]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def try_connection(url: httpx.URL, policy: Policy, tls: ssl.SSLContext, timeout: float) -> str:
    """Open one connection (with TLS for https) and close it; returns the address in words."""
    last: McpError | None = None
    for info in await _infos(url, policy, timeout):
        try:
            await _open_and_close(info, url, policy, tls, timeout)
        except TimeoutError:
            last = TransportError(
                Fault.TIMEOUT, f"{info[4][0]} did not accept a connection within {timeout:g} s.", may_have_run=False
            )
        except OSError as exc:
            last = connect_error(exc)
        else:
            return f"{info[4][0]} port {info[4][1]}" + (" with TLS" if url.scheme == "https" else "")
    raise last or TransportError(Fault.DNS_FAILED, "The name has no address.", may_have_run=False)


async def _open_and_close(info: Any, url: httpx.URL, policy: Policy, tls: ssl.SSLContext, timeout: float) -> None:
    loop = asyncio.get_running_loop()
    opened = socket_factory(policy)(info)
    try:
        opened.setblocking(False)
        async with asyncio.timeout(timeout):
            await loop.sock_connect(opened, info[4])
            if url.scheme == "https":
                transport, _ = await loop.create_connection(
                    asyncio.Protocol, ssl=tls, sock=opened, server_hostname=url.host
                )
                transport.abort()
    finally:
        opened.close()

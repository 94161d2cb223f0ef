"""Before the first byte: which addresses a URL leads to, and a socket to the first that accepts a connection."""

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


def wire_host(url: httpx.URL) -> str:
    """The host as it is looked up and certified: numeric, or in ASCII (punycode), which `URL.host` is not."""
    return url.raw_host.decode("ascii")


async def addresses(url: httpx.URL, policy: Policy, timeout: float) -> list[str]:
    """The numeric addresses of the host, judged. Raises McpError (dns_failed, address_refused)."""
    return [str(info[4][0]) for info in await _infos(url, policy, timeout)]


async def _infos(url: httpx.URL, policy: Policy, timeout: float) -> list[Any]:
    host, port = wire_host(url), _port(url)
    try:
        if _is_literal(host):
            demand(host, port, policy)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            # Named as TCP, because asyncio turns delays off (TCP_NODELAY) for such sockets only.
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
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


async def connected_socket(url: httpx.URL, policy: Policy, timeout: float) -> socket.socket:
    """A socket, the caller's to close, connected to the first address that accepts within `timeout` seconds."""
    last: McpError | None = None
    for info in await _infos(url, policy, timeout):
        try:
            async with asyncio.timeout(timeout):
                return await _connected(info, policy)
        except TimeoutError:
            last = TransportError(
                Fault.TIMEOUT, f"{info[4][0]} did not accept a connection within {timeout:g} s.", may_have_run=False
            )
        except OSError as exc:
            last = connect_error(exc)
    raise last or TransportError(Fault.DNS_FAILED, "The name has no address.", may_have_run=False)


async def _connected(info: Any, policy: Policy) -> socket.socket:
    opened = socket_factory(policy)(info)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, info[4])
    except BaseException:  # a cancelled attempt must not keep its socket either
        opened.close()
        raise
    return opened


async def try_connection(url: httpx.URL, policy: Policy, tls: ssl.SSLContext, timeout: float) -> str:
    """Open one connection (with TLS for https) and close it; returns the address in words."""
    opened = await connected_socket(url, policy, timeout)
    try:
        host, port, *_ = opened.getpeername()
        if url.scheme != "https":
            return f"{host} port {port}"
        async with asyncio.timeout(timeout):
            await _secure(opened, url, tls)
        return f"{host} port {port} with TLS"
    except TimeoutError:
        detail = f"{url.host} did not finish the TLS handshake within {timeout:g} s."
        raise TransportError(Fault.TIMEOUT, detail, may_have_run=False) from None
    except OSError as exc:
        raise connect_error(exc) from exc
    finally:
        opened.close()


async def _secure(opened: socket.socket, url: httpx.URL, tls: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, ssl=tls, sock=opened, server_hostname=wire_host(url))
    transport.abort()

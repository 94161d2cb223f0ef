"""Resolves a URL to allowed addresses, and connects a socket to the first that accepts."""

import asyncio
import ipaddress
import socket
import ssl
from typing import Any, Final

import httpx

from ..core.errors import Fault, McpError, TransportError
from .base import RefusedByPolicy, connect_error
from .egress import GuardedResolver, OutboundPolicy, demand, socket_factory, tunnelled

#: seconds until the next address is tried as well, as aiohttp does
_HEAD_START: Final = 0.25


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def wire_host(url: httpx.URL) -> str:
    """The host as used for lookup and certificates: numeric, or ASCII (punycode). Unlike `URL.host`, which raises for a
    name that IDNA 2008 does not allow, such as an emoji."""
    return url.raw_host.decode("ascii")


def as_sent(url: str) -> str:
    """A server's URL in ASCII, as requests send it: tokens are valid only for URLs with the same prefix."""
    try:
        return str(httpx.URL(url.strip()))
    except httpx.InvalidURL:
        return url  # refused when connecting


async def addresses(url: httpx.URL, policy: OutboundPolicy, timeout: float) -> list[str]:
    """The numeric addresses of the host, checked by the guard. Raises McpError (dns_failed, address_refused)."""
    return [str(info[4][0]) for info in await _infos(url, policy, timeout)]


async def _infos(url: httpx.URL, policy: OutboundPolicy, timeout: float) -> list[Any]:
    host, port = wire_host(url), _port(url)
    try:
        if _is_literal(host):
            demand(host, port, policy)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            # IPPROTO_TCP is explicit because asyncio sets TCP_NODELAY only on such sockets.
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


async def connected_socket(url: httpx.URL, policy: OutboundPolicy, timeout: float) -> socket.socket:
    """A socket connected to the first address that accepts within `timeout` seconds; the caller closes it. A slow
    address does not keep the next one from being tried (RFC 8305)."""
    name, untried = wire_host(url), await _infos(url, policy, timeout)
    last: McpError = TransportError(Fault.DNS_FAILED, "The name has no address.", may_have_run=False)
    attempts: dict[asyncio.Task[socket.socket], str] = {}
    try:
        async with asyncio.timeout(timeout):
            while untried or attempts:
                if untried:
                    info = untried.pop(0)
                    attempts[asyncio.create_task(_attempt(name, info, policy))] = str(info[4][0])
                ended, _ = await asyncio.wait(
                    attempts, timeout=_HEAD_START if untried else None, return_when=asyncio.FIRST_COMPLETED
                )
                for one in ended:
                    del attempts[one]
                    try:
                        return one.result()
                    except OSError as exc:
                        last = connect_error(exc)
    except TimeoutError:
        detail = f"{', '.join(attempts.values())} did not accept a connection within {timeout:g} s."
        last = TransportError(Fault.TIMEOUT, detail, may_have_run=False)
    finally:
        for one in attempts:
            one.add_done_callback(_close)
            one.cancel()
    raise last


def _close(late: "asyncio.Task[socket.socket]") -> None:
    """Close the socket of an attempt that lost. A cancelled attempt has closed its own."""
    if not late.cancelled() and late.exception() is None:
        late.result().close()


async def _attempt(name: str, info: Any, policy: OutboundPolicy) -> socket.socket:
    return await tunnelled(name, info, policy) or await _connected(info, policy)


async def _connected(info: Any, policy: OutboundPolicy) -> socket.socket:
    opened = socket_factory(policy)(info)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, info[4])
    except BaseException:  # a cancelled attempt must not leak its socket either
        opened.close()
        raise
    return opened


async def try_connection(url: httpx.URL, policy: OutboundPolicy, tls: ssl.SSLContext, timeout: float) -> str:
    """Open one connection (with TLS for https), close it, and return the address in words."""
    opened = await connected_socket(url, policy, timeout)
    try:
        host, port, *_ = opened.getpeername()
        where = f"{host} port {port}" if policy.proxy is None else f"{wire_host(url)} port {_port(url)}"
        if url.scheme != "https":
            return where
        async with asyncio.timeout(timeout):
            await _secure(opened, url, tls)
        return f"{where} with TLS"
    except TimeoutError:
        detail = f"{wire_host(url)} did not finish the TLS handshake within {timeout:g} s."
        raise TransportError(Fault.TIMEOUT, detail, may_have_run=False) from None
    except OSError as exc:
        raise connect_error(exc) from exc
    finally:
        opened.close()


async def _secure(opened: socket.socket, url: httpx.URL, tls: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, ssl=tls, sock=opened, server_hostname=wire_host(url))
    transport.abort()

"""The guard of every outbound connection, against SSRF: it checks addresses when the socket opens.

It resolves names first and checks the answer, so unusual spellings, DNS rebinding and mixed answers do not get through.
Literal addresses never reach the resolver, so the socket factory checks again.
"""

import asyncio
import ipaddress
import logging
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from ..core.errors import Fault, NotReady
from ..core.session import Outgoing
from .base import NameNotResolved, RefusedByPolicy
from .lookups import look_up
from .proxy import Proxy

REFUSED: Final = "The outbound guard does not allow this address."
IS_METADATA: Final = "it is a cloud metadata service"
log = logging.getLogger(__name__)
IPv4 = ipaddress.IPv4Address
IPv6 = ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*names: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(name) for name in names)


#: Cloud metadata services. No setting allows them.
METADATA: Final = _networks(
    "169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "168.63.129.16/32", "100.100.100.200/32",
    "192.0.0.192/32", "fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128",
)  # fmt: skip
LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
PRIVATE: Final = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
#: Neither loopback nor private, but still not the public internet (IANA special-purpose registries).
SPECIAL: Final = _networks(
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)  # fmt: skip
_GLOBAL_V6: Final = ipaddress.ip_network("2000::/3")
#: gateways reach the IPv4 address in the last 32 bits (RFC 6052, RFC 8215)
_NAT64: Final = _networks("64:ff9b::/96", "64:ff9b:1::/48")
#: of them, the one where a name server with DNS64 puts public hosts that have only an IPv4 address
_DNS64: Final = ipaddress.ip_network("64:ff9b::/96")
_ENTRY: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Allow:
    """One exception: a network and a port (None: any port)."""

    network: Network
    port: int | None = None

    @classmethod
    def parsed(cls, text: str) -> "Allow":
        """`10.1.0.0/16`, `10.1.0.5:8080`, `fd00::/8`, `[fd00::5]:8080`. ValueError for anything else."""
        whole = _ENTRY.fullmatch(text.strip())
        if whole is None:
            return cls(ipaddress.ip_network(text.strip(), strict=False))
        port = int(whole["port"])
        if not 0 < port < 65536:
            raise ValueError(f"{text!r} names no port.")
        return cls(ipaddress.ip_network(whole["six"] or whole["four"], strict=False), port)


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """Which addresses may be reached besides the public internet, and through which proxy. The operator's proxy itself
    is not checked; the addresses behind it are."""

    allow_loopback: bool = False
    allow_private: bool = False
    allow: tuple[Allow, ...] = ()
    proxy: Proxy | None = None


def refusal_reason(address: str, port: int, policy: OutboundPolicy) -> str | None:
    """None if a socket to this address may be opened, otherwise the reason. Accepts only plain numeric addresses; other
    forms that getaddrinfo accepts (`127.1`, `0x7f.1`) are refused."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "it is not a plain IP address"
    if isinstance(parsed, IPv6) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if is_metadata(parsed):
        return IS_METADATA
    if any(_opens(entry, parsed, port, policy) for entry in policy.allow):
        return None
    return _by_kind(parsed, policy)


def _opens(entry: Allow, address: IPv4 | IPv6, port: int, policy: OutboundPolicy) -> bool:
    """An exception for all that NAT64 reaches, or more, does not open the private networks behind the gateway: these need
    their own."""
    if address not in entry.network or entry.port not in (None, port):
        return False
    whole = address in _DNS64 and entry.network.prefixlen <= _DNS64.prefixlen
    return not whole or refusal_reason(str(_last_32_bits(address)), port, policy) is None


def is_metadata(address: IPv4 | IPv6) -> bool:
    """Also behind a gateway. An IPv4-mapped address is given as the IPv4 address."""
    return _within(address, METADATA) or any(_within(inner, METADATA) for inner in embedded(address))


def embedded(address: IPv4 | IPv6) -> list[IPv4]:
    """The IPv4 addresses that a gateway makes of it: NAT64, 6to4."""
    if not isinstance(address, IPv6):
        return []
    found = [address.sixtofour] if address.sixtofour is not None else []
    return [*found, _last_32_bits(address)] if _within(address, _NAT64) else found


def _last_32_bits(address: IPv4 | IPv6) -> IPv4:
    return IPv4(int(address) & 0xFFFFFFFF)


def _within(address: IPv4 | IPv6, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _by_kind(address: IPv4 | IPv6, policy: OutboundPolicy) -> str | None:
    if _within(address, LOOPBACK):
        return None if policy.allow_loopback else "it is this machine itself (loopback)"
    if _within(address, PRIVATE):
        return None if policy.allow_private else "it is a private network address"
    if address in _DNS64 and _by_kind(_last_32_bits(address), OutboundPolicy()) is None:
        return None
    if _within(address, SPECIAL) or (isinstance(address, IPv6) and address not in _GLOBAL_V6):
        return "it is not a public internet address"
    return None


def demand(address: str, port: int, policy: OutboundPolicy, name: str = "") -> None:
    """RefusedByPolicy if the address may not be reached. To the user who entered it, the error reveals neither where
    a name leads nor what is there. The operator's log has both."""
    reason = refusal_reason(address, port, policy)
    if reason is not None:
        log.warning("egress.refused name=%s address=%s port=%d: %s", name[:255] or "-", address[:64], port, reason)
        raise RefusedByPolicy(REFUSED)


class GuardedResolver(AbstractResolver):
    """Looks up a name and refuses the whole answer if one of its addresses is refused."""

    def __init__(self, policy: OutboundPolicy, timeout: float) -> None:
        self._policy = policy
        self._timeout = timeout

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        entries = await self._look_up(host, port, family)
        for entry in entries:
            demand(str(entry[4][0]), port, self._policy, host)
        return [_result(host, port, entry) for entry in entries]

    async def _look_up(self, host: str, port: int, family: int) -> list[Any]:
        try:
            async with asyncio.timeout(self._timeout):
                return await look_up(host, port, family)
        except TimeoutError:
            raise NameNotResolved(f"The lookup of {host} took longer than {self._timeout:g} s.") from None
        except (OSError, UnicodeError) as exc:
            raise NameNotResolved(f"The name {host} was not found.") from exc

    async def close(self) -> None:
        """Nothing to release."""


def _result(host: str, port: int, entry: Any) -> ResolveResult:
    family, _, protocol, _, address = entry
    return ResolveResult(
        hostname=host,
        host=str(address[0]),
        port=port,
        family=family,
        proto=protocol,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


#: An event stream may be silent for hours. The kernel's probes detect a peer that vanished silently:
#: after 60 s of silence, every 15 s, four times. macOS calls the first option TCP_KEEPALIVE.
_KEEPIDLE: Final = getattr(socket, "TCP_KEEPIDLE", 0x10)
_KEEPALIVE: Final = ((_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


async def tunnelled(name: str, info: Any, policy: OutboundPolicy) -> socket.socket | None:
    """A socket to this address through the proxy, checked by the guard; None if no proxy applies. Raises OSError."""
    address, port = str(info[4][0]), int(info[4][1])
    if policy.proxy is None or not policy.proxy.serves(name, address):
        return None
    demand(address, port, policy, name)
    opened = await policy.proxy.tunnel(address, port)
    _keep_alive(opened)
    return opened


def _keep_alive(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        opened.setsockopt(socket.IPPROTO_TCP, option, value)


def socket_factory(policy: OutboundPolicy) -> Callable[[Any], socket.socket]:
    """Returns the function that opens every direct outbound socket, called for each address actually tried."""

    def open_socket(info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        demand(str(address[0]), int(address[1]), policy)
        opened = socket.socket(family, kind, protocol)
        _keep_alive(opened)
        return opened

    return open_socket


#: the message that the request of this task carries
_carried: Final[ContextVar[Outgoing | None]] = ContextVar("_carried", default=None)


@contextmanager
def carrying(outgoing: Outgoing | None) -> Iterator[None]:
    """Meanwhile this task makes the request of this message, which leaves as soon as it has a connection."""
    before = _carried.set(outgoing)
    try:
        yield
    finally:
        _carried.reset(before)


class Connector(aiohttp.TCPConnector):
    """Connects through the policy's proxy. aiohttp's own proxy support would pass the name to the proxy."""

    policy = OutboundPolicy()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """No byte of a request is sent before it has its socket, address and TLS, so not before this returns."""
        made = await super().connect(req, traces, timeout)
        outgoing = _carried.get()
        if outgoing is not None:
            if outgoing.answered:
                made.release()
                raise NotReady("The request was abandoned before it was sent.", Fault.CLOSED)
            outgoing.left = True
        return made

    def stop_reusing(self) -> None:
        """From now on each request gets a connection of its own."""
        self._force_close = True  # what aiohttp's constructor sets; it has no method for it

    async def _wrap_create_connection(
        self, *args: Any, addr_infos: list[Any], req: Any, timeout: Any, **more: Any
    ) -> Any:
        try:
            async with asyncio.timeout(timeout.sock_connect):
                opened = await tunnelled(str(req.url.raw_host), addr_infos[0], self.policy)
                if opened is not None:
                    more.pop("client_error", None)
                    return await self._loop.create_connection(*args, **more, sock=opened)
        except ssl.CertificateError as exc:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, exc) from exc
        except ssl.SSLError as exc:
            raise aiohttp.ClientConnectorSSLError(req.connection_key, exc) from exc
        except TimeoutError:
            raise
        except OSError as exc:
            raise aiohttp.ClientConnectorError(req.connection_key, exc) from exc
        return await super()._wrap_create_connection(*args, addr_infos=addr_infos, req=req, timeout=timeout, **more)


def connector(policy: OutboundPolicy, tls: Any, *, timeout: float, connections: int) -> Connector:
    """A connection pool behind the guard. It drops idle connections before common servers do (5 s), because a request
    on a closing connection has an unknown outcome."""
    made = Connector(
        resolver=GuardedResolver(policy, timeout),
        socket_factory=socket_factory(policy),
        ssl=tls,
        use_dns_cache=False,
        limit=connections,
        keepalive_timeout=4.0,
    )
    made.policy = policy
    return made

"""The one guard of every outbound connection: addresses are judged when the socket opens.

Names are resolved first and the answer is judged, so odd spellings, rebinding and mixed answers do not help;
a literal address is never asked of a resolver, so the socket factory judges again.
"""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from .base import NameNotResolved, RefusedByPolicy

REFUSED: Final = "The outbound guard does not allow this address."
log = logging.getLogger(__name__)
IPv4 = ipaddress.IPv4Address
IPv6 = ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*names: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(name) for name in names)


#: Cloud metadata services. No setting opens them.
METADATA: Final = _networks(
    "169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32", "168.63.129.16/32", "100.100.100.200/32",
    "192.0.0.192/32", "fd00:ec2::254/128", "fd00:ec2::23/128", "fd20:ce::254/128",
)  # fmt: skip
LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
PRIVATE: Final = _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
#: Neither loopback nor private, and still not the public internet (IANA special-purpose registries).
SPECIAL: Final = _networks(
    "0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)  # fmt: skip
_GLOBAL_V6: Final = ipaddress.ip_network("2000::/3")
_ENTRY: Final = re.compile(r"(?:\[(?P<six>[^\]]+)\]|(?P<four>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Allow:
    """One exception: a network, and a port unless any."""

    network: Network
    port: int | None = None

    @classmethod
    def parsed(cls, text: str) -> "Allow":
        """`10.1.0.0/16`, `10.1.0.5:8080`, `fd00::/8`, `[fd00::5]:8080`. ValueError for all else."""
        whole = _ENTRY.fullmatch(text.strip())
        if whole is None:
            return cls(ipaddress.ip_network(text.strip(), strict=False))
        port = int(whole["port"])
        if not 0 < port < 65536:
            raise ValueError(f"{text!r} names no port.")
        return cls(ipaddress.ip_network(whole["six"] or whole["four"], strict=False), port)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which addresses may be reached besides the public internet."""

    allow_loopback: bool = False
    allow_private: bool = False
    allow: tuple[Allow, ...] = ()


def judge(address: str, port: int, policy: Policy) -> str | None:
    """None when a socket to this address may be opened, otherwise the reason. Only a plain numeric address
    is one; what getaddrinfo would also accept (`127.1`, `0x7f.1`) is refused."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "it is no plain IP address"
    if isinstance(parsed, IPv6) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if _within(parsed, METADATA):
        return "it is a cloud metadata service"
    if any(parsed in entry.network and entry.port in (None, port) for entry in policy.allow):
        return None
    return _by_kind(parsed, policy)


def _within(address: IPv4 | IPv6, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _by_kind(address: IPv4 | IPv6, policy: Policy) -> str | None:
    if _within(address, LOOPBACK):
        return None if policy.allow_loopback else "it is this machine itself (loopback)"
    if _within(address, PRIVATE):
        return None if policy.allow_private else "it is a private network address"
    if _within(address, SPECIAL) or (isinstance(address, IPv6) and address not in _GLOBAL_V6):
        return "it is not a public internet address"
    return None


def demand(address: str, port: int, policy: Policy, name: str = "") -> None:
    """RefusedByPolicy when the address may not be reached. Whoever named it learns no more than that: neither where a
    name leads nor what stands there (security.md R8). The operator's log has both."""
    reason = judge(address, port, policy)
    if reason is not None:
        log.warning("egress.refused name=%s address=%s port=%d: %s", name[:255] or "-", address[:64], port, reason)
        raise RefusedByPolicy(REFUSED)


class GuardedResolver(AbstractResolver):
    """Looks a name up and refuses the whole answer if one address of it is refused."""

    def __init__(self, policy: Policy, timeout: float) -> None:
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
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                return await loop.getaddrinfo(
                    host, port, type=socket.SOCK_STREAM, family=family, proto=socket.IPPROTO_TCP
                )
        except TimeoutError:
            raise NameNotResolved(f"The lookup of {host} took longer than {self._timeout:g} s.") from None
        except (OSError, UnicodeError) as exc:
            raise NameNotResolved(f"The name {host} was not found.") from exc

    async def close(self) -> None:
        """Nothing is held."""


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


#: A stream of events may be silent for hours. A peer that vanished without a word is noticed by the kernel's probes:
#: after a minute of silence, every 15 seconds, four times.
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


def socket_factory(policy: Policy) -> Callable[[Any], socket.socket]:
    """What opens every outbound socket of ours; called for each address that is really tried."""

    def open_socket(info: Any) -> socket.socket:
        family, kind, protocol, _, address = info
        demand(str(address[0]), int(address[1]), policy)
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
        return opened

    return open_socket


def connector(policy: Policy, tls: Any, *, timeout: float, connections: int) -> aiohttp.TCPConnector:
    """A connection pool behind the guard. Idle connections are dropped before common servers (5 s) drop them,
    because a request that meets a closing connection has an unknown outcome."""
    return aiohttp.TCPConnector(
        resolver=GuardedResolver(policy, timeout),
        socket_factory=socket_factory(policy),
        ssl=tls,
        use_dns_cache=False,
        limit=connections,
        keepalive_timeout=4.0,
    )

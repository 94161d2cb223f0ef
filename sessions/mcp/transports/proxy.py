"""An outbound HTTP proxy: every connection to a server is a tunnel (CONNECT) to an address that the guard checked.

We resolve and check the name, and pass only the address to the proxy. Otherwise the proxy would look the name up again
and could reach another address. TLS and the Host header still name the server; the CONNECT request has neither.
"""

import asyncio
import ipaddress
import re
import socket
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from .lookups import look_up

_HEAD_BYTES: Final = 16 * 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r)")
_END: Final = b"\r\n\r\n"


class ProxyError(OSError):
    """The proxy is unreachable or refuses the tunnel."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """`direct`: host names (with all their subdomains) that bypass the proxy. `networks`: addresses that bypass it.
    Loopback addresses always bypass it."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)
    direct: tuple[str, ...] = ()
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    @classmethod
    def parsed(cls, url: str, exceptions: Iterable[str] = ()) -> "Proxy | None":
        """`http://user:password@proxy.example:3128`; None for an empty text. ValueError for anything else."""
        if not url.strip():
            return None
        parts = urlsplit(url.strip())
        if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ValueError("an outbound proxy is written as http://host:port or http://user:password@host:port")
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        names, networks = [], []
        for entry in (text.strip() for text in exceptions):
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                names.append(entry.lower().removeprefix("*").strip("."))
        authorization = f"Basic {b64encode(pair.encode()).decode()}" if pair else ""
        return cls(parts.hostname, parts.port or 80, authorization, tuple(filter(None, names)), tuple(networks))

    def serves(self, name: str, address: str) -> bool:
        """Whether a connection to this host, at this address, goes through the proxy."""
        found = ipaddress.ip_address(address.partition("%")[0])
        name = name.lower().rstrip(".")
        if found.is_loopback or any(found in network for network in self.networks):
            return False
        return not any(name == direct or name.endswith(f".{direct}") for direct in self.direct)

    async def tunnel(self, address: str, port: int) -> socket.socket:
        """A socket tunneled to this address; the caller closes it. Raises ProxyError."""
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        opened = await self._connected()
        try:
            await self._ask(opened, target)
        except BaseException:  # a cancelled attempt must not leak its socket either
            opened.close()
            raise
        return opened

    async def _connected(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        try:
            infos = await look_up(self.host, self.port)
        except OSError as exc:
            raise ProxyError(f"The name of the outbound proxy {self.host} was not found.") from exc
        problem: OSError | None = None
        for family, kind, protocol, _, place in infos:
            opened = socket.socket(family, kind, protocol)
            try:
                opened.setblocking(False)
                await loop.sock_connect(opened, place)
            except OSError as exc:
                opened.close()
                problem = exc
            except BaseException:  # a cancelled attempt must not leak its socket
                opened.close()
                raise
            else:
                return opened
        words = f"The outbound proxy {self.host} port {self.port} cannot be reached"
        raise ProxyError(f"{words}: {(problem and problem.strerror) or 'no address'}.")

    async def _ask(self, opened: socket.socket, target: str) -> None:
        loop, head = asyncio.get_running_loop(), b""
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        lines += [f"Proxy-Authorization: {self.authorization}"] if self.authorization else []
        try:
            await loop.sock_sendall(opened, "\r\n".join([*lines, "", ""]).encode("ascii"))
            while _END not in head and len(head) < _HEAD_BYTES:
                if not (piece := await loop.sock_recv(opened, 4096)):
                    break
                head += piece
        except OSError as exc:
            raise ProxyError("The outbound proxy closed the connection.") from exc
        status = _STATUS.match(head)
        if status is None or _END not in head:
            raise ProxyError("The outbound proxy did not respond like an HTTP proxy.")
        if status[1] == b"407":
            raise ProxyError(
                "The outbound proxy refuses the username and password in MCPADMIN_OUTBOUND_PROXY (HTTP 407)."
            )
        if not 200 <= int(status[1]) < 300:
            words = "The outbound proxy refused a tunnel to this server"
            raise ProxyError(f"{words} (HTTP {status[1].decode()}). It must allow CONNECT to its address and port.")
        if not head.endswith(_END):
            raise ProxyError("The outbound proxy sent unexpected data.")

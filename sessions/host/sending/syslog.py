"""Messages to a syslog receiver over TLS (RFC 5425): each framed by its length in bytes.

Syslog has no acknowledgement. So each batch gets its own connection, and counts as delivered when the receiver has
closed it in turn: a receiver whose process dies with unread data resets the connection instead.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx

from sessions.host.sending.failure import NotDelivered
from sessions.host.sending.http import GUARDED
from sessions.mcp.core.errors import AddressRefused, McpError
from sessions.mcp.transports.base import connect_error
from sessions.mcp.transports.dialing import connected_socket, wire_host
from sessions.mcp.transports.egress import OutboundPolicy
from sessions.mcp.transports.engine import shared_tls

SECONDS: Final = 20.0
_PIECE: Final = 64 * 1024
#: separate, because a slow receiver holds a thread for all these seconds; as many as sinks and witnesses at once
_threads: Final = ThreadPoolExecutor(12, "syslog")
_LOST: Final = "The receiver closed the connection before it had read everything"


async def send(
    host: str,
    port: int,
    messages: Sequence[bytes],
    *,
    policy: OutboundPolicy,
    tls: ssl.SSLContext | None = None,
    seconds: float = SECONDS,
) -> None:
    """`messages`: each a whole RFC 5424 message. Raises NotDelivered."""
    bracketed = f"[{host}]" if ":" in host else host
    try:
        url = httpx.URL(f"https://{bracketed}:{port}/")
        async with asyncio.timeout(seconds):
            opened = await connected_socket(url, policy, seconds)
    except TimeoutError:
        raise NotDelivered(f"The receiver did not accept a connection within {seconds:g} s.") from None
    except AddressRefused as exc:
        raise NotDelivered(GUARDED) from exc
    except McpError as exc:
        raise NotDelivered(exc.detail) from exc
    except (httpx.InvalidURL, ValueError) as exc:
        raise NotDelivered("The host is not valid.") from exc
    data = b"".join(b"%d %s" % (len(message), message) for message in messages)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(_threads, _deliver, opened, wire_host(url), data, tls or shared_tls(), seconds)


def _deliver(opened: socket.socket, host: str, data: bytes, tls: ssl.SSLContext, seconds: float) -> None:
    """Blocks. TLS is driven by hand: asyncio and SSLSocket mistake a fatal alert of the peer for its close_notify."""
    try:
        with opened:
            _Exchange(opened, host, tls, time.monotonic() + seconds).run(data)
    except TimeoutError:
        raise NotDelivered(
            f"The receiver did not confirm within {seconds:g} s by closing the connection after the last message."
        ) from None
    except ssl.SSLCertVerificationError as exc:
        raise NotDelivered(str(connect_error(exc))) from exc
    except ssl.SSLError as exc:
        raise NotDelivered(f"The receiver ended the TLS connection: {exc.reason or type(exc).__name__}.") from exc
    except OSError as exc:
        raise NotDelivered(f"{_LOST}: {exc.strerror or type(exc).__name__}.") from exc


class _Exchange:
    """Raises TimeoutError at `deadline` (monotonic)."""

    def __init__(self, opened: socket.socket, host: str, tls: ssl.SSLContext, deadline: float) -> None:
        self._socket, self._in, self._out = opened, ssl.MemoryBIO(), ssl.MemoryBIO()
        self._deadline = deadline
        self._tls = tls.wrap_bio(self._in, self._out, server_hostname=host)

    def run(self, data: bytes) -> None:
        """Return when the receiver has closed after our close_notify."""
        while self._step(self._tls.do_handshake):
            if not self._received():
                raise ConnectionResetError("The receiver closed the connection during the TLS handshake.")
        for start in range(0, len(data), _PIECE):
            self._tls.write(data[start : start + _PIECE])
            self._flush()
        self._step(self._tls.unwrap)  # only writes the close_notify: nothing was received that it could read
        while self._received():
            try:
                while self._step(self._read) is False:
                    pass
            except ssl.SSLZeroReturnError:
                return

    def _read(self) -> None:
        """Reading, unlike the end of an unwrap, reports a fatal alert."""
        if not self._tls.read(_PIECE):
            raise ssl.SSLZeroReturnError

    def _step(self, step: Callable[[], object]) -> bool:
        """True if it needs to receive more."""
        try:
            step()
            return False
        except ssl.SSLWantReadError:
            return True
        finally:
            self._flush()

    def _flush(self) -> None:
        if waiting := self._out.read():
            self._wait_no_longer()
            self._socket.sendall(waiting)

    def _received(self) -> bool:
        """False at the end of the stream: after everything sent was read, as unread data leads to a reset."""
        self._wait_no_longer()
        piece = self._socket.recv(_PIECE)
        self._in.write(piece)
        return bool(piece)

    def _wait_no_longer(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)

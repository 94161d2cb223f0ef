"""The connection of one command: address, token, and the client that speaks to the endpoint of a server or bundle."""

import ipaddress
import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx

from mcpadmin import __version__, hardening
from mcpadmin.command_line.exit_status import Ending, ExitStatus
from sessions.mcp.client import Client
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import Fault, ProtocolError
from sessions.mcp.core.events import Event
from sessions.mcp.core.limits import KIB, MIB, Limits
from sessions.mcp.core.opening import EraSetting
from sessions.mcp.core.refusals import READ_BYTES, words_in
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.session import Outgoing
from sessions.mcp.transports.base import Transport, translated
from sessions.mcp.transports.egress import Allow, OutboundPolicy
from sessions.mcp.transports.endpoint import Endpoint
from sessions.mcp.transports.engine import engine, shared_tls
from sessions.mcp.transports.recording import Exchange
from sessions.mcp.transports.streamable_http import StreamableHttpTransport, answers

_TOKEN: Final = re.compile(r"[\x21-\x7e]{8,4096}\Z")
#: a person gives the address, so any is allowed except a cloud's metadata service
_ANYWHERE: Final = OutboundPolicy(allow=(Allow(ipaddress.ip_network("0.0.0.0/0")), Allow(ipaddress.ip_network("::/0"))))
_WEEK: Final = 7 * 24 * 3600.0
#: mcpadmin ends a call by the timeouts of its server. A ping that fails while mcpadmin restarts must not end it here.
_PATIENT: Final = Timeouts(request=_WEEK, tool=_WEEK, total=_WEEK, keepalive_idle=_WEEK)
#: The peer is the user's own mcpadmin, which limits what its servers send: these are the highest values that it can be
#: set to (servers/validators/limits.py).
LIMITS: Final = Limits(
    message_bytes=256 * MIB,
    message_values=10_000_000,
    depth=256,
    inflated_bytes=512 * MIB,
    inflated_ratio=1_000,
    sse_event_bytes=256 * MIB + 64 * KIB,
    stream_bytes=512 * MIB,
    list_items=100_000,
    list_pages=10_000,
    list_bytes=512 * MIB,
)
_PROGRAM: Final = "mcpadmin-command"
_FLUSH_SECONDS: Final = 3.0


class Placed:
    """Learns the id that mcpadmin gives a call from the response headers. A recorder and its exchanges in one."""

    def __init__(self) -> None:
        self.call = ""

    def answered(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            if name.lower() == b"mcpadmin-call":
                self.call = value.decode("ascii", "replace")[:64]

    def exchange(self, verb: str, url: str, headers: Mapping[str, str], *, authorization: bool = False) -> Exchange:
        return self

    def opened(self, kind: str, limits: Limits) -> None: ...
    def sent(self, outgoing: Outgoing, exchange: Exchange | None = None) -> None: ...
    def received(self, data: bytes, answering: Outgoing | None = None, exchange: Exchange | None = None) -> None: ...
    def hide(self, value: str) -> None: ...
    def failed(self, fault: str, detail: str) -> None: ...
    def read(self, size: int) -> None: ...
    def ended(self) -> None: ...


@dataclass
class Connection:
    """`calling`: the bytes of a tool call may have been sent. `printed`: the exit status, once its result was written."""

    url: str
    token: str = field(repr=False)
    placed: Placed = field(default_factory=Placed)
    calling: bool = False
    printed: ExitStatus | None = None

    def page_of(self, call: str) -> str:
        return f"{self.url}/calls/{call}/" if call else ""

    async def api(self, path: str, **query: str) -> dict[str, Any]:
        """Fetch a page of a list from the HTTP API. Raises McpError."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "User-Agent": _PROGRAM}
        transport = engine(_ANYWHERE, LIMITS, shared_tls(), timeout=_PATIENT.connect)
        try:
            with translated():
                request = httpx.Request("GET", f"{self.url}/api/v1{path}", params=query, headers=headers)
                response = await transport.handle_async_request(request)
                body = await response.aread()
        finally:
            await transport.aclose()
        if 300 <= response.status_code < 400:
            answers.redirect_target(response, request.url, "")  # raises: no redirect is followed with a token
        if response.status_code != 200:
            words = words_in(body[:READ_BYTES], answers.media_type(response))
            raise answers.status_error(response, words, credential=True)
        try:
            found: dict[str, Any] = json.loads(body)
            if not isinstance(found, dict) or not isinstance(found.get("items"), list):
                raise ValueError("not a page of a list")
        except ValueError as problem:
            raise ProtocolError(Fault.INVALID_MESSAGE, "The response is not from mcpadmin. Check --url.") from problem
        return found

    @asynccontextmanager
    async def client(
        self,
        server: str,
        *,
        era: EraSetting = "legacy",
        timeouts: Timeouts = _PATIENT,
        headers: Mapping[str, str] | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> AsyncIterator[Client]:
        """A legacy session by default: its streams can be resumed, so a call survives a lost connection. Raises
        McpError."""
        sent = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        endpoint = Endpoint(
            f"{self.url}/mcp/{quote(server, safe='', errors='replace')}",
            headers=lambda: sent,
            policy=_ANYWHERE,
            limits=LIMITS,
            credential=True,
            recorder=self.placed,
            feed=False,
        )
        client = Client(
            partial(_transport, endpoint),
            client_info=Implementation(_PROGRAM, __version__, "mcpadmin command line"),
            capabilities={},
            limits=LIMITS,
            timeouts=timeouts,
            era=era,
            on_event=on_event,
        )
        try:
            await client.connect()
            yield client
        finally:
            await client.close(flush=_FLUSH_SECONDS)


async def _transport(endpoint: Endpoint, kind: str = "", url: str = "") -> Transport:
    return StreamableHttpTransport(endpoint)  # the registry would load the other transports too


def connection(given: Namespace) -> Connection:
    """Raises Ending (usage)."""
    url = given.url.rstrip("/")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or "@" in url or "?" in url or "#" in url:
        shown = f"{given.url[:200]!r}" if "@" not in url else "--url"  # it may contain a password
        raise Ending(
            ExitStatus.USAGE,
            f"{shown} is not the address of an mcpadmin installation. Example: https://mcp.example.com",
        )
    if parts.scheme == "http" and not _is_here(parts.hostname) and not given.allow_http:
        words = "The token would cross the network unencrypted. Use https, or --allow-http if the network is trusted."
        raise Ending(ExitStatus.USAGE, words)
    return Connection(url, _token(given))


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(given: Namespace) -> str:
    if given.token_file is not None:
        text = read_file(given.token_file, "--token-file")
    elif given.token is not None:
        text = given.token
    else:
        text = hardening.variables.get("MCPADMIN_TOKEN", "")
    token = text.strip()
    if not token:
        words = "No token. Create one on the Agents page, then use --token-file FILE or the variable MCPADMIN_TOKEN."
        raise Ending(ExitStatus.USAGE, words)
    if not _TOKEN.match(token):
        raise Ending(ExitStatus.USAGE, "The token contains characters that are not allowed in a token, such as spaces.")
    return token


def read_file(name: str, option: str) -> str:
    """The text of a file; `-` is standard input. Raises Ending (usage)."""
    if not name:  # from an unset variable
        raise Ending(ExitStatus.USAGE, f"{option}: the file name is empty.")
    if name == "-" and sys.stdin is None:
        raise Ending(ExitStatus.USAGE, f"{option}: standard input is closed.")
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(os.path.expanduser(name)).read_bytes()
        return data.decode("utf-8-sig")  # whatever the locale says: JSON is UTF-8
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise Ending(ExitStatus.USAGE, f"{option}: {name} cannot be read: {reason}.") from problem

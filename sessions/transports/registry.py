"""From a description of a server to a transport: the only place that knows all kinds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from ..protocol.limits import Limits
from .base import Transport
from .endpoint import Endpoint, nothing
from .http_sse import HttpSseTransport
from .stdio import StdioTransport
from .streamable_http import StreamableHttpTransport
from .websocket import WebSocketTransport


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """A command to run. `env` is called at each start and gives what was declared for this server; PATH, HOME,
    LANG and TZ are added where not declared. Values never appear in a repr, nor do
    arguments and directory: what a reference stands for may be in them."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    cwd: str | None = field(default=None, repr=False)
    env: Callable[[], Mapping[str, str]] = field(default=nothing, repr=False)
    limits: Limits = Limits()


HttpKind = Literal["auto", "streamable_http", "http_sse"]


@dataclass(frozen=True, slots=True)
class HttpSpec(Endpoint):
    """An endpoint over HTTP. `kind`: "auto" is Streamable HTTP and, where the server does not speak it, HTTP+SSE of
    2024-11-05."""

    kind: HttpKind = "auto"


@dataclass(frozen=True, slots=True)
class WebSocketSpec(Endpoint):
    """An endpoint over WebSocket (`ws://` or `wss://`), which no revision of MCP defines: the SDKs' convention."""


Spec = StdioSpec | HttpSpec | WebSocketSpec


async def open_transport(spec: Spec, kind: str = "", url: str = "") -> Transport:
    """A new, not yet connected transport; `functools.partial(open_transport, spec)` is what Client takes.

    `kind` and `url` (base.OpenTransport) are heeded where the spec leaves them open.
    """
    if isinstance(spec, StdioSpec):
        return StdioTransport(command=spec.command, args=spec.args, cwd=spec.cwd, env=spec.env, limits=spec.limits)
    if url and _same_origin(url, spec.url):
        spec = replace(spec, url=url)
    if isinstance(spec, WebSocketSpec):
        return WebSocketTransport(spec)
    if spec.kind == "http_sse" or (spec.kind == "auto" and kind == "http_sse"):
        return HttpSseTransport(spec)
    transport = StreamableHttpTransport(spec)
    transport.fallback = "http_sse" if spec.kind == "auto" else ""
    return transport


def _same_origin(one: str, other: str) -> bool:
    """Credentials belong to the origin that a person registered, whatever is remembered."""

    def origin(text: str) -> tuple[str, str, int | None]:
        parts = urlsplit(text)
        default = {"http": 80, "ws": 80, "https": 443, "wss": 443}.get(parts.scheme)
        return parts.scheme, (parts.hostname or "").lower(), parts.port or default

    try:
        return origin(one) == origin(other)
    except ValueError:  # not a URL
        return False

"""Creates the transport for a description of a server: the only place that knows all kinds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import urlsplit

from ..core.limits import Limits
from .base import Transport
from .endpoint import Endpoint, nothing
from .http_sse import HttpSseTransport
from .recording import UNRECORDED, Recorder
from .stdio import Confinement, StdioTransport
from .streamable_http import StreamableHttpTransport
from .websocket import WebSocketTransport


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """A command to run. `env` is called at each start and returns what was declared for this server. PATH, HOME, LANG
    and TZ are inherited unless declared; a confined command has its own home. A repr never shows these values, the
    arguments or the directory, because references in them may resolve to secrets."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    cwd: str | None = field(default=None, repr=False)
    env: Callable[[], Mapping[str, str]] = field(default=nothing, repr=False)
    limits: Limits = Limits()
    #: None: it has the same rights as this process
    confinement: Confinement | None = None
    recorder: Recorder = field(default=UNRECORDED, repr=False)


HttpKind = Literal["auto", "streamable_http", "http_sse"]


@dataclass(frozen=True, slots=True)
class HttpSpec(Endpoint):
    """An endpoint over HTTP. `kind` "auto": Streamable HTTP, with fallback to HTTP+SSE of 2024-11-05 if the server does
    not support it."""

    kind: HttpKind = "auto"


@dataclass(frozen=True, slots=True)
class WebSocketSpec(Endpoint):
    """An endpoint over WebSocket (`ws://` or `wss://`): a convention of the SDKs that no revision of MCP defines."""


Spec = StdioSpec | HttpSpec | WebSocketSpec


async def open_transport(spec: Spec, kind: str = "", url: str = "") -> Transport:
    """Create an unconnected transport. Client takes `functools.partial(open_transport, spec)`.

    `kind` (base.OpenTransport) applies only if the spec's kind is "auto", `url` only within the spec's origin.
    """
    transport = _transport(spec, kind, url)
    spec.recorder.opened(transport.kind, spec.limits)
    return transport


def _transport(spec: Spec, kind: str, url: str) -> Transport:
    if isinstance(spec, StdioSpec):
        return StdioTransport(
            command=spec.command,
            args=spec.args,
            cwd=spec.cwd,
            env=spec.env,
            limits=spec.limits,
            confinement=spec.confinement,
            recorder=spec.recorder,
        )
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
    """Remembered URLs must not send credentials to another origin than the registered one."""

    def origin(text: str) -> tuple[str, str, int | None]:
        parts = urlsplit(text)
        default = {"http": 80, "ws": 80, "https": 443, "wss": 443}.get(parts.scheme)
        return parts.scheme, (parts.hostname or "").lower(), parts.port or default

    try:
        return origin(one) == origin(other)
    except ValueError:  # not a URL
        return False

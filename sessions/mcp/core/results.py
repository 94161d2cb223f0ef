"""Values that the client returns to its callers."""

from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import Fault, McpError
from .jsonrpc import RequestId
from .memory import Remembered
from .versions import Era


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `request` and `tool` are idle times that progress extends; nothing extends `total`."""

    connect: float = 10.0
    #: stream transports: how long the probe waits alone before `initialize` follows it
    probe: float = 10.0
    #: stream transports: how long a process or connection may stay silent (cold `npx` and `uvx` starts)
    silence: float = 60.0
    initialize: float = 60.0
    request: float = 60.0
    tool: float = 300.0
    total: float = 1_800.0
    keepalive_idle: float = 15.0
    keepalive_answer: float = 10.0
    keepalive_misses: int = 2


StepName = Literal["resolve", "connect", "handshake"]


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the page *Test connection*; `seconds` is None for "started"."""

    name: StepName
    status: Literal["started", "finished", "failed"]
    seconds: float | None = None
    detail: str = ""
    error: McpError | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    era: Era
    revision: str
    #: `{"name": ..., "version": ...}` verbatim; empty when a modern server named none
    server_info: dict[str, Any]
    instructions: str
    server_capabilities: dict[str, Any]
    client_capabilities: dict[str, Any]
    transport: str
    #: empty for stdio
    url: str
    #: how the era was determined, in words
    decided_by: str
    #: a legacy HTTP server uses a wire session (its id is a secret and not shown)
    has_wire_session: bool = False
    #: pass this to the next client of the same server and identity
    remember: Remembered | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """`items` as the server wrote them; only the first of several entries with the same name.

    `limited_by`: the limit that cut the list, empty if it is not truncated; `cut_because`: the reason in words.
    `ttl_ms` and `cache_scope` ("public", "private") are the caching hints of a modern server: the shortest lifetime and
    narrowest scope of all pages. None from a legacy server.
    """

    items: list[dict[str, Any]]
    truncated: bool = False
    warnings: list[str] = field(default_factory=list)
    limited_by: Fault | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    cut_because: str = ""


@dataclass(slots=True)  # not frozen, for speed: each call creates one
class ToolResult:
    """`raw` is the unchanged result object. `attempts`: how often the call was sent."""

    raw: dict[str, Any]
    request_id: RequestId
    attempts: int = 1

    @property
    def is_error(self) -> bool:
        return self.raw.get("isError") is True

    @property
    def content(self) -> list[Any]:
        value = self.raw.get("content")
        return value if isinstance(value, list) else []

    @property
    def structured(self) -> Any:
        return self.raw.get("structuredContent")

"""What the client remembers of a server, so that the next opening can skip the discovery.

Source: 2026-07-28 *Lifecycle / Backwards compatibility* (a client may cache the era of a server).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from . import jsonrpc
from .errors import Fault, HttpError, McpError, ProtocolError, RpcError, TransportError
from .versions import REVISIONS, Era

#: seconds until the server is probed again: an old legacy verdict keeps working and would hide an upgrade
LIFETIME: Final = 24 * 3_600.0
KINDS: Final = frozenset({"stdio", "streamable_http", "http_sse", "websocket"})
#: statuses that concern credentials or load, and say nothing about the era or the transport
_ELSEWHERE: Final = frozenset({401, 403, 429})
_GONE: Final = frozenset({Fault.PROCESS_EXITED, Fault.CONNECTION_LOST})


@dataclass(frozen=True, slots=True)
class Remembered:
    """Valid for one server under one identity (URL and credentials; command, arguments and environment).

    `url` is the address after redirects, empty for stdio. `decided_at` is in seconds since 1970.
    """

    era: Era
    revision: str
    kind: str
    url: str
    decided_at: float

    def fresh(self, now: float) -> bool:
        """Whether the entry is still valid. A time in the future cannot be ours."""
        return 0.0 <= now - self.decided_at < LIFETIME

    def wire(self) -> dict[str, Any]:
        """The JSON form that `recalled` reads."""
        return {**asdict(self), "era": str(self.era)}


def recalled(value: object) -> Remembered | None:
    """What `Remembered.wire` wrote, or None for anything else."""
    if not isinstance(value, Mapping):
        return None
    revision = REVISIONS.get(str(value.get("revision")))
    kind, url, at = str(value.get("kind")), value.get("url"), value.get("decided_at")
    if revision is None or kind not in KINDS or not isinstance(url, str):
        return None
    if isinstance(at, bool) or not isinstance(at, (int, float)) or value.get("era") != revision.era:
        return None
    return Remembered(revision.era, revision.name, kind, url, float(at))


def contradicts(error: McpError, memory: Remembered) -> bool:
    """Whether an opening that relied on memory failed in a way that wrong memory may explain.

    Silence proves nothing: a child may be slow to start. Over HTTP a lost connection proves nothing either. A child
    that dies may by now be another program.
    """
    if isinstance(error, HttpError):
        return 300 <= error.status < 500 and error.status not in _ELSEWHERE
    if isinstance(error, TransportError):
        return memory.kind in ("stdio", "websocket") and error.fault in _GONE
    return isinstance(error, (RpcError, ProtocolError))


def outdates(error: McpError, *, discover: bool = False) -> bool:
    """Whether this answer in an open modern session shows that the server is no longer modern. `discover`: the request
    was `server/discover`, which every modern server knows."""
    if isinstance(error, HttpError):
        return error.status in (404, 405)
    if not isinstance(error, RpcError):
        return False
    return error.code == jsonrpc.UNSUPPORTED_VERSION or (discover and error.code == jsonrpc.METHOD_NOT_FOUND)

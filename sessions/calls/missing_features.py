"""Calls that failed because the server or mcpadmin lacks a feature: what to do, if known."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from servers.enums import EraChoice
from servers.models import Server
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.versions import REVISIONS, Era
from sessions.models import Call, McpSession

#: searched characters of a failed tool's result
LOOKED_AT: Final = 20_000
#: error texts of servers whose tools send requests, which revision 2026-07-28 removed: official Python SDK 2
#: (and FastMCP through it), FastMCP 4, official TypeScript SDK 2
_TAKEN_AWAY: Final = re.compile(
    r"no back-channel for server-initiated requests"
    r"|via server-initiated requests is unavailable on \d{4}-\d\d-\d\d connections"
    r"|Server-to-client requests are not available on protocol revision"
)
RECONNECT: Final = "The tool requests input in a way that revision 2026-07-28 no longer supports. Reconnect the server as legacy (2025-11-25), where it works. You can switch back under Settings."
_DECLARED_BY: Final = {
    "roots": "Add a root under Settings, Roots: the server needs to know which folders it can use.",
    "sampling": "Turn on sampling under Settings, Server requests.",
    "elicitation": "Turn on elicitation under Settings, Server requests.",
}


def taken_away(call: Call, text: str) -> bool:
    """Whether this call might succeed in the legacy era although it failed in the modern one."""
    session, server = call.session, call.server
    if server is None or session is None or not _TAKEN_AWAY.search(text[:LOOKED_AT]):
        return False
    return server.era != EraChoice.LEGACY and _is_modern(session)


def remedy_of(code: int, data: str, session: McpSession | None, server: Server | None) -> str:
    """Where to enable the feature that the server requires; empty for any other error."""
    if code != jsonrpc.MISSING_CAPABILITY or session is None or server is None or not _is_modern(session):
        return ""
    words = [_said_of(name, value) for name, value in _required(data).items()]
    return " ".join(filter(None, words))


def _said_of(name: str, value: Any) -> str:
    if name == "extensions" and isinstance(value, Mapping):
        names = ", ".join(str(entry)[:80] for entry in list(value)[:5])
        return f"The server needs an extension that mcpadmin does not have ({names}). This cannot be configured."
    return _DECLARED_BY.get(name, "")


def _required(data: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    required = found.get("requiredCapabilities") if isinstance(found, dict) else None
    return required if isinstance(required, dict) else {}


def _is_modern(session: McpSession) -> bool:
    revision = REVISIONS.get(session.revision)
    return revision is not None and revision.era is Era.MODERN

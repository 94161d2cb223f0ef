"""The end of a visit that a server requested from an agent, as the server reports it (2025-11-25, elicitation by URL).

Lossy: an agent that receives nothing asks its user, as the specification says.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from sessions.agents import agent_sessions
from sessions.mcp.core import jsonrpc
from sessions.mcp.core.capabilities import elicitation_modes
from sessions.mcp.core.input_requests import ELICITED
from sessions.mcp.core.versions import REVISIONS


def heard_by(revision: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a legacy agent understands the notification."""
    return REVISIONS[revision].elicitation_url and "url" in elicitation_modes(capabilities)


def of_hint(hint: Mapping[str, Any]) -> list[tuple[str, UUID]]:
    """Elicitation ids with their calls. Checks all fields: anyone who can write to Redis can publish anything."""
    found = []
    for row in hint.get("rows") or []:
        identity, call = (row.get("elicitation"), row.get("call")) if isinstance(row, dict) else (None, None)
        if isinstance(identity, str) and isinstance(call, str):
            with suppress(ValueError):
                found.append((identity, UUID(call)))
    return found


def completed(elicitation_id: str) -> bytes:
    return jsonrpc.notification(ELICITED, {"elicitationId": elicitation_id})


def calls_of_session(session_pk: int, calls: Collection[UUID]) -> set[UUID]:
    """The calls among these that this agent session made or joined. Call it in a thread."""
    found = agent_sessions.calls_of(session_pk).filter(call__uid__in=calls)
    return set(found.values_list("call__uid", flat=True))

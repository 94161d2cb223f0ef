"""The end of a visit that a server asked an agent for, as the server reports it (2025-11-25, elicitation in URL mode).

Lossy: an agent that hears nothing asks its person, as the specification has it.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from sessions.mcp.core import jsonrpc
from sessions.mcp.core.capabilities import elicitation_modes
from sessions.mcp.core.input_requests import ELICITED
from sessions.mcp.core.versions import REVISIONS
from sessions.models import AgentCall


def heard_by(revision: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a legacy agent knows the notification."""
    return REVISIONS[revision].elicitation_url and "url" in elicitation_modes(capabilities)


def of_hint(hint: Mapping[str, Any]) -> list[tuple[str, UUID]]:
    """Elicitation ids with their calls. Only valid fields: anyone who can write to Redis can publish anything."""
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
    """Those of the calls that this session of an agent made. For a thread."""
    found = AgentCall.objects.filter(session_id=session_pk, call__uid__in=calls)
    return set(found.values_list("call__uid", flat=True))

"""What a session's row keeps of the handshake: what the server is, and how it was reached."""

from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from sessions.connections.lifecycle import Greeting
from sessions.host.answer_redaction import Redactor
from sessions.mcp.core.memory import Remembered
from sessions.mcp.core.results import Connected


def greeting_of(connected: Connected, redactor: Redactor) -> Greeting:
    remember = connected.remember
    return Greeting(
        era=str(connected.era),
        revision=connected.revision,
        transport=connected.transport,
        url=redactor.text(connected.url),
        decided_by=redactor.text(connected.decided_by),
        decided_at=datetime.fromtimestamp(remember.decided_at, UTC) if remember else timezone.now(),
        remembered=_kept(remember, redactor),
        server_info=redactor.value(connected.server_info),
        instructions=redactor.text(connected.instructions),
        server_capabilities=redactor.value(connected.server_capabilities),
        client_capabilities=connected.client_capabilities,
    )


def _kept(remember: Remembered | None, redactor: Redactor) -> dict[str, Any]:
    """Empty if the server put a credential into the URL that it redirected us to: such a URL is not stored."""
    return {} if remember is None or redactor.text(remember.url) != remember.url else remember.wire()

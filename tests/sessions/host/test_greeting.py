"""What the session row keeps of a handshake."""

import json
from typing import Any

from servers.secret import Secret
from sessions.host.answer_redaction import Redactor
from sessions.host.greeting import greeting_of
from sessions.mcp.core.memory import Remembered, recalled
from sessions.mcp.core.results import Connected
from sessions.mcp.core.versions import Era

AT = 1_790_000_000.0
CANARY = "canary-90210-secret"


def connected(url: str = "https://x.example/mcp", **fields: Any) -> Connected:
    memory = Remembered(Era.LEGACY, "2025-11-25", "http_sse", url, AT)
    told = {
        "era": Era.LEGACY,
        "revision": "2025-11-25",
        "server_info": {"name": "x"},
        "instructions": "",
        "server_capabilities": {},
        "client_capabilities": {},
        "transport": "http_sse",
        "url": url,
        "decided_by": "the probe",
        "remember": memory,
    }
    return Connected(**(told | fields))


def test_what_was_found_out_is_kept_with_the_time_at_which_it_was() -> None:
    found = greeting_of(connected(), Redactor())
    assert (found.transport, found.url, found.decided_by) == ("http_sse", "https://x.example/mcp", "the probe")
    assert found.decided_at.timestamp() == AT
    assert recalled(json.loads(json.dumps(found.remembered))) == connected().remember


def test_a_url_that_holds_a_credential_is_neither_shown_nor_remembered() -> None:
    found = greeting_of(connected(f"https://x.example/{CANARY}"), Redactor((Secret(CANARY),)))
    assert CANARY not in str(found)
    assert found.remembered == {}


def test_a_connection_that_is_not_to_be_remembered_was_decided_now() -> None:
    found = greeting_of(connected(remember=None), Redactor())
    assert found.remembered == {}
    assert found.decided_at.timestamp() > AT

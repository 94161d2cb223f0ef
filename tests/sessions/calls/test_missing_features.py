"""When a call fails because a protocol feature is missing, the card says how to fix it."""

import json
from typing import Any

import pytest
from django.template.loader import render_to_string

from servers.enums import EraChoice, TransportKind
from sessions.enums import CallState
from sessions.models import Call
from tests.sessions.calls.test_card import call, over

__all__ = ["call"]
pytestmark = pytest.mark.django_db
#: error texts of real servers on 2026-07-28
SAID = {
    "fastmcp 4, ctx.elicit": "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.",
    "python sdk 2": "Error calling tool 'raw': Cannot send 'sampling/createMessage': this transport context has no "
    "back-channel for server-initiated requests.",
    "typescript sdk 2": "Server-to-client requests are not available on protocol revision 2026-07-28: "
    "'elicitation/create' cannot be sent while serving a request on that revision.",
}
BUTTON = "Reconnect as legacy"


def html(call: Call, may_read: bool = True) -> str:
    return render_to_string("calls/_card.html", {"call": call, "may_read": may_read})


@pytest.fixture
def modern(call: Call) -> Call:
    assert call.session is not None
    call.session.revision = "2026-07-28"
    call.session.save()
    return call


def failed(call: Call, text: str) -> Call:
    return over(call, CallState.TOOL_ERROR, {"isError": True, "content": [{"type": "text", "text": text}]})


@pytest.mark.parametrize("text", SAID.values(), ids=SAID.keys())
def test_a_tool_that_misses_what_the_modern_era_took_away_offers_the_legacy_one(modern: Call, text: str) -> None:
    shown = html(failed(modern, text))
    assert BUTTON in shown
    assert 'href="/servers/demo/legacy/?tool=' in shown
    assert "data-needs-register-commands" in shown
    assert modern.server is not None
    modern.server.transport = TransportKind.STREAMABLE_HTTP
    assert "data-needs-change-server" in html(modern)


def test_the_same_as_a_json_rpc_error_offers_it_as_well(modern: Call) -> None:
    fields = {"error_code": -32600, "error_message": SAID["python sdk 2"]}
    assert BUTTON in html(over(modern, CallState.RPC_ERROR, **fields))


def test_nothing_is_offered_where_it_would_not_help(modern: Call) -> None:
    text = next(iter(SAID.values()))
    assert BUTTON not in html(failed(modern, "the city is unknown"))
    assert BUTTON not in html(failed(modern, text), may_read=False)
    assert modern.server is not None
    modern.server.era = EraChoice.LEGACY
    assert BUTTON not in html(failed(modern, text))
    modern.server.era = EraChoice.AUTO
    assert modern.session is not None
    modern.session.revision = "2025-11-25"
    assert BUTTON not in html(failed(modern, text))


@pytest.mark.parametrize(
    ("required", "words"),
    [
        ({"roots": {}}, "Add a root under Settings, Roots"),
        ({"sampling": {}}, "Turn on sampling under Settings"),
        ({"elicitation": {"url": {}}}, "Turn on elicitation under Settings"),
        ({"roots": {}, "sampling": {}}, "Turn on sampling under Settings"),
        ({"extensions": {"com.example/x": {}}}, "an extension that mcpadmin does not have (com.example/x)"),
    ],
)
def test_a_missing_capability_says_where_it_is_switched_on(modern: Call, required: Any, words: str) -> None:
    data = json.dumps({"requiredCapabilities": required})
    assert words in html(over(modern, CallState.RPC_ERROR, error_code=-32021, error_message="no", error_data=data))


@pytest.mark.parametrize(
    "data", ["", "[", "[]", "7", '{"requiredCapabilities": []}', '{"requiredCapabilities": {"x": 1}}']
)
def test_what_names_no_capability_says_what_any_error_says(modern: Call, data: str) -> None:
    shown = html(over(modern, CallState.RPC_ERROR, error_code=-32021, error_message="no", error_data=data))
    assert "The server rejected the request" in shown

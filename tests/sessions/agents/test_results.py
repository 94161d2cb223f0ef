"""What a stored result becomes for an agent."""

import json
from typing import cast

import pytest

from sessions.agents.calls import outcomes
from sessions.agents.calls.outcomes import Ended
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange, Via
from sessions.enums import CallState
from sessions.mcp.core.versions import Era
from sessions.mcp.server.refusals import Refusal
from sessions.models import Call
from tests.sessions.agents.door import LEGACY, MODERN

ASKED = {"a": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}}


def told(text: str, era: Era, method: str = "tools/call", via: Via | None = None) -> bytes:
    revision = MODERN if era is Era.MODERN else LEGACY
    exchange = Exchange(cast("Entry", None), era, revision, 1, method, {"name": "t"}, {}, "", "", via=via)
    return outcomes.message(exchange, Ended(Call(state=CallState.SUCCEEDED, server_name="Web", target="t"), text))


def test_a_legacy_agent_that_joined_a_call_which_requires_input_is_told_so() -> None:
    text = json.dumps({"resultType": "input_required", "inputRequests": ASKED})
    result = json.loads(told(text, Era.LEGACY))["result"]
    assert result["isError"] is True
    assert "Web asks for input" in result["content"][0]["text"]
    with pytest.raises(Refusal, match="Web asks for input"):
        told(text, Era.LEGACY, "resources/read")

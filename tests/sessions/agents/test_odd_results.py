"""What a server answers to a tool's call although the protocol has no such result reaches agents as one that they can
read."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sessions.agents.product import META, Agent, Product

pytestmark = pytest.mark.up
SERVER = str(Path(__file__).parents[1] / "host" / "effect_server.py")


@pytest.fixture(scope="module")
def agent(product: Product) -> Agent:
    product.register(
        "Odd", (sys.executable, [SERVER]), "--era", "legacy", f"--env=EFFECT_LOG={product.effects}.odd",
        f"--write={product.effects.parent}",
    )  # fmt: skip
    return product.agent(product.token("list", "call"), "odd")


def given_back(agent: Agent, result: Any, **more: Any) -> dict[str, Any]:
    params = {"name": "echo", "arguments": {"result": result}, **more}
    answer = agent.ask_modern("tools/call", params, **{META + "clientCapabilities": {"elicitation": {"form": {}}}})
    return dict(answer.json()["result"])


def test_a_legacy_server_cannot_require_input_of_a_modern_agent(product: Product, agent: Agent) -> None:
    asked = {"a": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}}
    told = given_back(agent, {"resultType": "input_required", "inputRequests": asked, "content": []})
    assert (told["resultType"], "requestState" in told) == ("complete", False)
    assert product.calls(target="echo")[-1]["schema_violation"] == ""


@pytest.mark.parametrize(
    ("result", "text", "failed"),
    [
        ({"structuredContent": {"n": 1}}, '{"n":1}', None),
        ({"content": "plain"}, "plain", None),
        ({"content": [{"type": "text", "text": "no"}], "isError": "true"}, "no", True),
        ({"content": [{"type": "text", "text": "yes"}], "isError": "no"}, "yes", False),
    ],
)
def test_a_result_that_is_none_of_a_tool_is_one_for_the_agent_and_noted(
    product: Product, agent: Agent, result: Any, text: str, failed: bool | None
) -> None:
    told = given_back(agent, result)
    assert (told["content"], told.get("isError")) == ([{"type": "text", "text": text}], failed)
    row = product.calls(target="echo")[-1]
    assert (row["state"], bool(row["schema_violation"])) == ("tool_error" if failed else "succeeded", True)

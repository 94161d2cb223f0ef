"""A tool that changed between list and call is not called. The log of effects shows what ran. 500 tries without
a server: test_consent_reuse.py."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sessions.agents.product import Agent, Product
from tests.sessions.host.harness import eventually

pytestmark = pytest.mark.up
PEER = Path(__file__).resolve().parents[2] / "peers" / "shifting_server.py"


@pytest.fixture(scope="module")
def agents(product: Product) -> list[Agent]:
    """Some with tokens of their own: each may send ten requests a second."""
    shared = (f"--env=EFFECT_LOG={product.effects}", f"--write={product.effects.parent}", f"--read={PEER.parent}")
    product.register("Shifting", (sys.executable, [str(PEER)]), "--era", "legacy", *shared)
    found = []
    for number in range(3):
        agent = product.agent(product.token("list", "call", label=f"shifting {number}"), "shifting")
        assert agent.initialize().status_code == 200
        found.append(agent)
    return found


def ask(agent: Agent, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return agent.post(agent.body(method, params)).json()


def listed(agent: Agent) -> list[str]:
    return [tool["name"] for tool in ask(agent, "tools/list", {})["result"]["tools"]]


def shift(agent: Agent, to: int, number: int) -> None:
    """`number` makes each call differ from the others."""
    told = ask(agent, "tools/call", {"name": "shift", "arguments": {"to": to, "n": number}})
    assert told["result"]["content"][0]["text"] == "done"


def effects(product: Product) -> int:
    return product.effects.read_text().count("target") if product.effects.exists() else 0


def test_a_tool_that_its_server_changes_between_list_and_call_is_never_called(
    product: Product, agents: list[Agent]
) -> None:
    before = effects(product)
    for number in range(1, 4):  # after more of them, announcements are read ten seconds apart
        agent = agents[number % len(agents)]
        eventually(lambda who=agent: "target" in listed(who))
        shift(agent, number, number)
        told = ask(agent, "tools/call", {"name": "target", "arguments": {"n": number}})["result"]
        assert told["isError"] is True
        assert "approved the change" in told["content"][0]["text"]
        shift(agent, 0, -number)
    assert effects(product) == before
    eventually(lambda: "target" in listed(agents[0]))
    assert ask(agents[0], "tools/call", {"name": "target", "arguments": {"n": 0}})["result"]["content"]
    assert effects(product) == before + 1

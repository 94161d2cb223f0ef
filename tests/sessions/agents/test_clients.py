"""Clients that are not ours, through the door: the official SDKs for Python and TypeScript, 1.x and 2.x in each of their
modes, FastMCP, and mcp-remote."""

import json
import subprocess

import pytest

from tests.peers.peers import agent_client
from tests.sessions.agents.product import Product

pytestmark = pytest.mark.up
FACES = (
    *("sdk1", "sdk2-legacy", "sdk2-auto", "sdk2-2026-07-28", "fastmcp"),
    *("ts1", "ts2-legacy", "ts2-auto", "ts2-2026-07-28", "mcp-remote"),
)
#: clients that use the modern era with a modern server
MODERN = ("sdk2-auto", "sdk2-2026-07-28", "fastmcp", "ts2-auto", "ts2-2026-07-28")
#: each official SDK and each pair of eras; FastMCP, which takes long to start, is long
SHORT = {
    *(("sdk1", "modern"), ("sdk2-legacy", "legacy"), ("sdk2-2026-07-28", "modern")),
    *(("ts1", "legacy"), ("ts2-2026-07-28", "legacy"), ("mcp-remote", "modern")),
}
PAIRS = [
    pytest.param(face, upstream, id=f"{face}-{upstream}", marks=[pytest.mark.long] * ((face, upstream) not in SHORT))
    for face in FACES
    for upstream in ("legacy", "modern")
]


def progress_of(face: str) -> list[list[int]]:
    """What may be heard. The TypeScript SDK hands on a notification later than a response, so those that come together
    with the response get lost."""
    return [[1, 2, 3], [1, 2], [1]] if face.startswith(("ts", "mcp-remote")) else [[1, 2, 3]]


@pytest.mark.parametrize(("face", "upstream"), PAIRS)
def test_a_program_does_everything_through_the_door(product: Product, face: str, upstream: str) -> None:
    token = product.token(label=f"{face}-{upstream}")
    words = (product.url(upstream), product.url(f"asking-{upstream}"), token)
    done = subprocess.run([*agent_client(face), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-6_000:]
    found = json.loads(done.stdout.split("FOUND ", 1)[1])
    assert {"echo", "add", "slow"} <= set(found["tools"])
    assert found["echo"] == "from an agent"
    assert found["structured"] == {"total": 42, "terms": [20, 22]}
    assert found["progress"] in progress_of(face)
    assert found["failed"] == [True, True]
    assert "nope" in found["unknown"]
    assert all(found["read"])
    assert found["templates"] >= 1
    assert found["prompt"] >= 1
    assert found["completed"] is True
    assert "count=3" in found["asked"]
    mine = product.stack.rows(
        "SELECT call.state FROM mcp_sessions_call call JOIN mcp_sessions_agentcall agent ON agent.call_id = call.id "
        "WHERE agent.token_name = ?",
        f"{face}-{upstream}",
    )
    states = [row["state"] for row in mine]
    # Between a modern agent and a modern server, a question ends its call.
    rounds = upstream == "modern" and face in MODERN
    assert len(states) == 8 + rounds
    assert states.count("tool_error") == 1
    assert states.count("succeeded") == 7 + rounds

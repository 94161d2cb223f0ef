"""Clients that are not ours, through the door: the official Python SDK 1.x and 2.x in each of its modes, and FastMCP."""

import json
import subprocess

import pytest

from tests.peers.peers import HERE, peer_python
from tests.sessions.agents.programs import Product

pytestmark = pytest.mark.up
FACES = {
    "sdk1": "sdk1",
    "sdk2-legacy": "sdk2",
    "sdk2-auto": "sdk2",
    "sdk2-2026-07-28": "sdk2",
    "fastmcp": "fastmcp",
}


#: each official SDK and each pair of eras
SHORT = {("sdk1", "modern"), ("sdk2-legacy", "legacy"), ("sdk2-2026-07-28", "modern"), ("fastmcp", "legacy")}
PAIRS = [
    pytest.param(face, upstream, id=f"{face}-{upstream}", marks=[pytest.mark.long] * ((face, upstream) not in SHORT))
    for face in FACES
    for upstream in ("legacy", "modern")
]


@pytest.mark.parametrize(("face", "upstream"), PAIRS)
def test_a_program_does_everything_through_the_door(product: Product, face: str, upstream: str) -> None:
    token = product.token(label=f"{face}-{upstream}")
    words = (face, product.url(upstream), product.url(f"asking-{upstream}"), token)
    done = subprocess.run(
        [peer_python(FACES[face]), HERE / "agent_client.py", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-6_000:]
    found = json.loads(done.stdout.split("FOUND ", 1)[1])
    assert {"echo", "add", "slow"} <= set(found["tools"])
    assert found["echo"] == "from a program"
    assert found["structured"] == {"total": 42, "terms": [20, 22]}
    assert found["progress"] == [1, 2, 3]
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
    # Between a modern program and a modern server, a question ends its call.
    rounds = upstream == "modern" and face in ("sdk2-auto", "sdk2-2026-07-28", "fastmcp")
    assert len(states) == 8 + rounds
    assert states.count("tool_error") == 1
    assert states.count("succeeded") == 7 + rounds

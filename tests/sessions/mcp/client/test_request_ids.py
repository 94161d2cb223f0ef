"""The ids of our requests are increasing integers, even across a new connection."""

import json
import sys
from pathlib import Path

import pytest

from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports.registry import StdioSpec
from tests.sessions.mcp.transports.making import connected

pytestmark = pytest.mark.integration

NOTES = """
import os, subprocess, sys, threading
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)

def copy():
    with open(sys.argv[1], "ab", buffering=0) as notes:
        for line in sys.stdin.buffer:
            notes.write(line)
            server.stdin.write(line)
            server.stdin.flush()
    server.stdin.close()

threading.Thread(target=copy, daemon=True).start()
os._exit(server.wait())
"""


def noted(log: Path, *ways: str) -> StdioSpec:
    """A scripted server whose stdin is logged to a file."""
    script = Path(__file__).parents[1] / "transports" / "stdio_scripts" / "server.py"
    return StdioSpec(sys.executable, ("-c", NOTES, str(log), sys.executable, str(script), *ways))


@pytest.mark.parametrize("way", ["modern", "ignores-probe", "dies-at-probe"])
async def test_every_request_has_an_integer_of_its_own_as_id_and_as_progress_token(way: str, tmp_path: Path) -> None:
    log = tmp_path / "stdin"
    async with connected(noted(log, way), timeouts=Timeouts(probe=0.2)) as made:
        await made.client.call_tool("progress", {}, on_progress=lambda *_: None)
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    ids = [message["id"] for message in messages if "id" in message]
    assert [type(identity) for identity in ids] == [int] * len(ids)
    assert ids == sorted(set(ids))
    calls = [message for message in messages if message["method"] == "tools/call"]
    assert [call["params"]["_meta"]["progressToken"] for call in calls] == [call["id"] for call in calls]

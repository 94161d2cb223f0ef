"""A child process gets exactly the environment declared for it. tests/canary proves that secrets reach nothing else."""

import asyncio
import json
import time
from uuid import UUID

import pytest

from tests.e2e.sockets import Visitor, a_call, greeted
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.long]
IN_ENVIRONMENT, IN_OURS = "canary-env-7f3a91c2d4", "canary-ours-5b8e0d77"
READY_SECONDS = 40


async def called(stack: Stack, visitor: Visitor, server: str) -> str:
    """Call `tell` and return the uid of the finished call."""
    async with greeted(stack, visitor) as live:
        return str((await a_call(live, server, "tell", {}))["uid"])


def ready_servers(stack: Stack, count: int) -> dict[str, str]:
    """Wait for `count` servers with a session and tools. Returns uid by name."""
    query = (
        "SELECT v.name FROM servers_server v JOIN mcp_sessions_mcpsession s ON s.server_id = v.id WHERE "
        "s.state = 'ready' AND EXISTS (SELECT 1 FROM servers_definition d WHERE d.server_id = v.id)"
    )
    deadline = time.monotonic() + READY_SECONDS
    while len(stack.rows(query)) < count:
        assert time.monotonic() < deadline, stack.output[-3000:]
        time.sleep(0.2)  # no event reports rows of another process
    rows = stack.rows("SELECT name, uid FROM servers_server ORDER BY id")
    return {row["name"]: str(UUID(row["uid"])) for row in rows}


def test_a_child_is_given_what_was_declared_for_it_and_nothing_of_its_neighbours(make_stack) -> None:
    stack = make_stack(env={"OPERATORS_OWN_TOKEN": IN_OURS}, administrator=True).start()
    command, arguments = peer_command("telltale")
    as_ada = ("register_server", "--user", ADMIN[0], "--name")
    given = {"GIVEN_ENV": IN_ENVIRONMENT}
    stack.manage(*as_ada, "First", "--secret-env", "API_TOKEN=GIVEN_ENV", "--", command, *arguments, env=given)
    stack.manage(*as_ada, "Second", "--env", "PLAIN=plain-value", "--", command, *arguments)
    servers = ready_servers(stack, 2)
    visitor = Visitor(stack)
    call = asyncio.run(called(stack, visitor, servers["Second"]))
    told = json.loads(visitor.get(f"/calls/{call}/result.json").text)["structuredContent"]
    names = {name for name, value in told.items() if value != "is a key"}
    own = {"HOME", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR", "RES_OPTIONS"}
    own |= {f"XDG_{kind}_HOME" for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    assert names - own - {"PATH", "LANG", "TZ", "PWD", "LC_CTYPE"} == {"PLAIN"}
    assert IN_ENVIRONMENT not in json.dumps(told)
    assert IN_OURS not in json.dumps(told)

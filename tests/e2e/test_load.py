"""500 calls by 50 callers through 50 real sockets: nothing lost, nothing twice, nothing left behind."""

import asyncio
import glob
import os
import re
import signal
import time

import pytest

from tests.e2e.sockets import Visitor, a_call, greeted
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.up, pytest.mark.slow]
CALLERS, CALLS_EACH, SETTLE_SECONDS = 50, 10, 10
#: connections to SQLite that requests at the same moment may have had open (see `database_files`)
SIMULTANEOUS_REQUESTS = 8
HOLDINGS = re.compile(r".*holdings.*")


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.fixture
def product(make_stack) -> Stack:
    # Ten sockets are what one person may have; this one plays fifty.
    stack = make_stack(env={"MCPADMIN_SOCKETS_PER_USER": str(CALLERS)}).start()
    stack.create_admin()
    return stack


async def caller(stack: Stack, visitor: Visitor, server: str, effects: list[str], start: asyncio.Event) -> list[str]:
    async with greeted(stack, visitor) as socket:
        await start.wait()
        return [
            (await a_call(socket, server, "counter", {"id": effect}, ref))["uid"] for ref, effect in enumerate(effects)
        ]


async def everybody(stack: Stack, server: str, word: str, each: int) -> list[str]:
    """Uids of the calls of CALLERS callers at once, `each` one after the other through a socket of its own."""
    visitor = await asyncio.to_thread(Visitor, stack)
    start = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        names = [[f"{word}-{number}-{index}" for index in range(each)] for number in range(CALLERS)]
        tasks = [group.create_task(caller(stack, visitor, server, effects, start)) for effects in names]
        await asyncio.sleep(1)
        start.set()
    visitor.close()  # its idle connections are descriptors of the web process too
    return [uid for task in tasks for uid in task.result()]


def holdings(stack: Stack) -> dict[str, dict[str, int]]:
    """What web and worker say of themselves on SIGUSR2, after a moment of quiet."""
    found = {}
    for part, word in (("web", "daphne"), ("worker", "mcpadmin.worker")):
        since = len(stack.lines)
        process = stack.part(word)[-1]
        os.kill(process.pid, signal.SIGUSR2)
        line = stack.wait_for(HOLDINGS, since=since)[0]
        counts = re.findall(r"\W?(descriptors|threads|tasks|children)\W+?(-?\d+)", line)
        found[part] = {name: int(number) for name, number in counts}
        found[part]["database files"] = database_files(process.pid)
    return found


def database_files(pid: int) -> int:
    """Descriptors of the database itself. SQLite may close none while another connection of the process holds a lock,
    keeps them, and gives them to the next connections: so many stay as were ever open at once, never one a call."""
    links = [os.path.realpath(link) for link in glob.glob(f"/proc/{pid}/fd/*")]
    return sum(link.endswith(".sqlite3") for link in links)


def register_counter(stack: Stack, effects) -> str:
    command, arguments = peer_command("sdk1", "stdio")
    stack.manage(
        "register_server", "--user", ADMIN[0], "--name", "Counter", "--env", f"EFFECT_LOG={effects}",
        "--", command, *arguments,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        rows = stack.rows("SELECT state FROM mcp_sessions_mcpsession")
        if (
            rows
            and rows[0]["state"] == "ready"
            and stack.rows("SELECT 1 FROM servers_definition WHERE key = 'counter'")
        ):
            return stack.shell("from servers.models import Server; print(Server.objects.get().uid)").strip()
        time.sleep(0.2)
    raise AssertionError(f"the counter never became ready:\n{stack.output[-3000:]}")


def test_five_hundred_calls_of_fifty_callers_happen_once_each_and_leave_nothing_behind(product, effects) -> None:
    server = register_counter(product, effects)
    # Threads and pools that a process makes once are made by the first calls, not by the counted ones.
    for word in ("first", "second"):
        asyncio.run(everybody(product, server, word, CALLS_EACH))
    time.sleep(SETTLE_SECONDS)
    before = holdings(product)
    began = time.monotonic()
    uids = asyncio.run(everybody(product, server, "counted", CALLS_EACH))
    seconds = time.monotonic() - began
    time.sleep(SETTLE_SECONDS)
    after = holdings(product)
    total = CALLERS * CALLS_EACH
    everything = 3 * total

    print(f"\n{total} calls in {seconds:.1f} s; before {before}, after {after}")
    assert len(set(uids)) == total
    states = product.rows("SELECT state, count(*) AS n FROM mcp_sessions_call GROUP BY state")
    assert [(row["state"], row["n"]) for row in states] == [("succeeded", everything)]
    events = product.rows(
        "SELECT action, count(*) AS n FROM servers_auditevent WHERE call_uid IS NOT NULL GROUP BY action"
    )
    assert {row["action"]: row["n"] for row in events} == {
        "call:tool:request": everything,
        "call:tool:send": everything,
        "call:tool:finish": everything,
    }
    lines = [line for line in effects.read_text().splitlines() if line.startswith("counted")]
    assert len(lines) == total
    assert len({line.split("\t")[0] for line in lines}) == total
    for part in ("web", "worker"):
        kept = after[part].pop("database files") - before[part].pop("database files")
        assert abs(kept) <= SIMULTANEOUS_REQUESTS
        after[part]["descriptors"] -= kept
    assert after == before
    product.manage("verify_audit")  # fails when the chain is broken

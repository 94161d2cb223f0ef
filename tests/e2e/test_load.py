"""500 calls by 50 callers through 50 real sockets: nothing lost, nothing twice, nothing left behind."""

import asyncio
import os
import re
import signal
import time

import pytest

from tests.e2e.sockets import Visitor, a_call, greeted
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.up, pytest.mark.slow]
CALLERS, CALLS_EACH, SETTLE_SECONDS, SLACK_DESCRIPTORS = 50, 10, 10, 25
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
    return found


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
    asyncio.run(everybody(product, server, "first", 4))
    time.sleep(SETTLE_SECONDS)
    before = holdings(product)
    began = time.monotonic()
    uids = asyncio.run(everybody(product, server, "counted", CALLS_EACH))
    seconds = time.monotonic() - began
    time.sleep(SETTLE_SECONDS)
    after = holdings(product)
    total = CALLERS * CALLS_EACH
    everything = total + 4 * CALLERS

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
        kept_open = after[part].pop("descriptors") - before[part].pop("descriptors")
        # SQLite closes a descriptor only when no connection of the process holds a lock, and a pool keeps idle Redis
        # connections: a few more or fewer at any moment, never one a call.
        assert abs(kept_open) <= SLACK_DESCRIPTORS
    assert after == before
    product.manage("verify_audit")  # fails when the chain is broken

"""500 calls by 50 callers over 50 real sockets: none lost, none duplicated, no resource leaked."""

import asyncio
import glob
import os
import re
import signal
import time

import pytest

from tests.e2e.sockets import Visitor, a_call, greeted
from tests.faults.checkers import left_behind
from tests.peers.peers import peer_command
from tests.tools.stack import ADMIN, Stack

#: `make test` has 500 calls of 50 sockets: tests/sessions/live/test_calls.py
pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.long]
CALLERS, CALLS_EACH, SETTLE_SECONDS = 50, 10, 10
#: twice, by all callers at once, so that all the threads and connections that the counted calls need exist already
WARMING_CALLS_EACH = 3
#: SQLite connections that simultaneous requests may have opened (see `database_files`)
SIMULTANEOUS_REQUESTS = 8
#: threads, each with a descriptor, that bounded pools may still create: a pool of ours or of asyncio grows when none of
#: its threads is idle at that moment, and no number of earlier calls rules that out. One leaked per caller would be 50.
POOL_ROOM = 8
HOLDINGS = re.compile(r".*holdings.*")


@pytest.fixture
def effects(tmp_path):
    return tmp_path / "effects"


@pytest.fixture
def product(make_stack) -> Stack:
    # A person may have ten sockets; this one needs fifty.
    return make_stack(env={"MCPADMIN_SOCKETS_PER_USER": str(CALLERS)}, administrator=True).start()


async def caller(stack: Stack, visitor: Visitor, server: str, effects: list[str], start: asyncio.Event) -> list[str]:
    async with greeted(stack, visitor) as socket:
        await start.wait()
        return [
            (await a_call(socket, server, "counter", {"id": effect}, ref))["uid"] for ref, effect in enumerate(effects)
        ]


async def everybody(stack: Stack, server: str, word: str, each: int) -> list[str]:
    """Run CALLERS callers at once, each with its socket and `each` calls one after the other. Returns the uids."""
    visitor = await asyncio.to_thread(Visitor, stack)
    start = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        names = [[f"{word}-{number}-{index}" for index in range(each)] for number in range(CALLERS)]
        tasks = [group.create_task(caller(stack, visitor, server, effects, start)) for effects in names]
        await asyncio.sleep(1)
        start.set()
    visitor.close()  # its idle connections are also descriptors of the web process
    return [uid for task in tasks for uid in task.result()]


def holdings(stack: Stack) -> tuple[dict[str, dict[str, int]], list[int]]:
    """What web and worker report on SIGUSR2, with the database descriptors of each counted separately."""
    found, files = {}, []
    for part, word in (("web", "daphne"), ("worker", "mcpadmin.worker")):
        since = len(stack.lines)
        process = stack.part(word)[-1]
        os.kill(process.pid, signal.SIGUSR2)
        line = stack.wait_for(HOLDINGS, since=since)[0]
        counts = re.findall(r"\W?(descriptors|threads|tasks|children)\W+?(-?\d+)", line)
        found[part] = {name: int(number) for name, number in counts}
        files.append(database_files(process.pid))
        found[part]["descriptors"] -= files[-1]
    return found, files


def more_than(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> list[str]:
    """What web or worker has more of than before, beyond what the threads of their pools may add."""
    room = {"threads": POOL_ROOM, "descriptors": POOL_ROOM}
    return [f"{part}: {line}" for part in after for line in left_behind(before[part], after[part], room)]


def holdings_after(stack: Stack, before: dict[str, dict[str, int]]) -> tuple[dict[str, dict[str, int]], list[int]]:
    """The holdings as soon as nothing is left behind, or after SETTLE_SECONDS, when everything temporary has ended."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while more_than(before, (found := holdings(stack))[0]) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def database_files(pid: int) -> int:
    """Descriptors of the database and its journal.

    While another connection of the process holds a lock, SQLite may close no database descriptor. It keeps them for
    later connections, and each thread keeps its connection. So the count follows the most connections open at once, not
    the calls."""
    links = [os.path.realpath(link) for link in glob.glob(f"/proc/{pid}/fd/*")]
    return sum(link.endswith((".sqlite3", ".sqlite3-wal")) for link in links)


def register_counter(stack: Stack, effects) -> str:
    command, arguments = peer_command("sdk1", "stdio")
    stack.manage(
        "register_server", "--user", ADMIN[0], "--name", "Counter", "--env", f"EFFECT_LOG={effects}",
        "--write", str(effects.parent),
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
    # The warm-up calls create the threads and pools that a process creates once, so the counted calls do not.
    for word in ("first", "second"):
        asyncio.run(everybody(product, server, word, WARMING_CALLS_EACH))
    time.sleep(SETTLE_SECONDS)
    before, files_before = holdings(product)
    began = time.monotonic()
    uids = asyncio.run(everybody(product, server, "counted", CALLS_EACH))
    seconds = time.monotonic() - began
    after, files_after = holdings_after(product, before)
    total = CALLERS * CALLS_EACH
    everything = total + 2 * CALLERS * WARMING_CALLS_EACH

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
    assert more_than(before, after) == []
    kept = [now - then for now, then in zip(files_after, files_before, strict=True)]
    assert [files for files in kept if abs(files) > 2 * SIMULTANEOUS_REQUESTS] == []
    product.manage("verify_audit")  # fails when the chain is broken

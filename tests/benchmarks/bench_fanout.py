"""Measures the time from the commit of an event to each listening browser: the audit feed at 100 and 500 sockets.

python -m tests.benchmarks.bench_fanout [--rounds N] [--events N]

Events come 200 ms apart, so that each is sent at once (a feed sends at most ten frames a second). The clock starts when
the commit has returned; the time that the commit itself takes (the disk sync) is printed separately. One process reads
all sockets, and its time is part of the measurement. The run raises one setting: MCPADMIN_SOCKETS_PER_USER.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import orjson

from tests.benchmarks.bench_path import running
from tests.benchmarks.load import percentile
from tests.e2e.sockets import Visitor, greeted
from tests.tools.stack import ROOT, Stack

SOCKETS = (100, 500)
GOALS = {100: 50.0}
PAUSE_SECONDS = 0.2
CATCH_UP_SECONDS = 30.0
#: for each line of stdin, writes one event with that number and prints the clock before and after its commit
RECORDER = """
import sys, time
import django
django.setup()
from django.db import transaction
from servers.audit.record import SYSTEM, Event, record_many
from servers.enums import AuditAction, AuditOutcome
for line in sys.stdin:
    began = time.time_ns()
    with transaction.atomic():
        transaction.on_commit(lambda: print(began, time.time_ns(), flush=True))
        record_many([Event(AuditAction.USER_CHANGE, AuditOutcome.OK, SYSTEM, subject=f"bench {line.strip()}")])
"""


class Round(NamedTuple):
    """In milliseconds: the sorted latencies of each event at each socket, and the duration of each commit."""

    latencies: list[float]
    commits: list[float]


class Listener:
    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.heard: dict[int, int] = {}  # number of the event -> time of its arrival

    async def read(self) -> None:
        async for text in self.socket:
            now = time.time_ns()
            for row in orjson.loads(text).get("rows") or ():
                if row["subject"].startswith("bench "):
                    self.heard[int(row["subject"][6:])] = now


@asynccontextmanager
async def listeners(product: Stack, count: int) -> AsyncIterator[list[Listener]]:
    async with AsyncExitStack() as stack:
        visitor = await asyncio.to_thread(Visitor, product)
        stack.callback(visitor.close)
        made = [Listener(await stack.enter_async_context(greeted(product, visitor))) for _ in range(count)]
        for one in made:
            await one.socket.send('{"op": "sub", "topics": {"audit": null}}')
        reading = [asyncio.create_task(one.read()) for one in made]
        await asyncio.sleep(1)  # lets all of them sync
        try:
            yield made
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


@contextmanager
def recorder(product: Stack) -> Iterator["subprocess.Popen[str]"]:
    env = product._env | {"MCPADMIN_DATA_DIR": str(product.data_dir), "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
    command = [sys.executable, "-c", RECORDER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes)  # type: ignore[call-overload]  # pipes are of one kind
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(20)


def write_one(process: "subprocess.Popen[str]", number: int) -> tuple[int, int]:
    """Record one event. Returns the clock before and after its commit."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{number}\n")
    process.stdin.flush()
    began, _, ended = process.stdout.readline().partition(" ")
    return int(began), int(ended)


async def one_round(heard: list[Listener], process: "subprocess.Popen[str]", events: int) -> Round:
    for one in heard:
        one.heard.clear()
    written = []
    for number in range(events):
        written.append(await asyncio.to_thread(write_one, process, number))
        await asyncio.sleep(PAUSE_SECONDS)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while any(len(one.heard) < events for one in heard) and time.monotonic() < deadline:  # noqa: ASYNC110  sockets fill dicts
        await asyncio.sleep(0.05)
    missed = sum(events - len(one.heard) for one in heard)
    if missed:
        raise RuntimeError(f"{missed} events never came to a socket")
    latencies = sorted((one.heard[number] - written[number][1]) / 1e6 for one in heard for number in range(events))
    return Round(latencies, [(ended - began) / 1e6 for began, ended in written])


async def measure(product: Stack, count: int, rounds: int, events: int) -> list[Round]:
    with recorder(product) as process:
        async with listeners(product, count) as heard:
            await one_round(heard, process, 3)  # warms up
            return [await one_round(heard, process, events) for _ in range(rounds)]


def show(count: int, rounds: list[Round]) -> None:
    p50 = [percentile(one.latencies, 0.5) for one in rounds]
    p99 = [percentile(one.latencies, 0.99) for one in rounds]
    commits = sorted(took for one in rounds for took in one.commits)
    print(f"{count:>5} sockets: p50 {statistics.median(p50):.1f} ms ({min(p50):.1f}-{max(p50):.1f}), ", end="")
    print(f"p99 {statistics.median(p99):.1f} ms ({min(p99):.1f}-{max(p99):.1f});", end="")
    print(f" a commit took {percentile(commits, 0.5):.1f} ms, p99 {percentile(commits, 0.99):.1f}")
    if goal := GOALS.get(count):
        met = statistics.median(p99) <= goal
        print(
            f"  {'met   ' if met else 'MISSED'} p99 at {count} sockets, best round {min(p99):.1f} (goal: at most {goal:g} ms)"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--sockets", type=int, nargs="*", default=list(SOCKETS))
    options = parser.parse_args()
    with running(MCPADMIN_SOCKETS_PER_USER=str(max(options.sockets))) as product:
        print(f"{options.rounds} rounds of {options.events} events; MCPADMIN_SOCKETS_PER_USER={max(options.sockets)}")
        for count in options.sockets:
            show(count, asyncio.run(measure(product, count, options.rounds, options.events)))


if __name__ == "__main__":
    main()

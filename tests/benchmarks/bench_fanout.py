"""From the commit of an event to each browser that listens: the audit feed at 100 and 500 sockets.

python -m tests.benchmarks.bench_fanout [--rounds N] [--events N]

Events come 200 ms apart, so that each is sent at once (a feed sends ten frames a second at most). The moment right after
the commit travels in the event's subject. The sockets' own process reads all of them, and its time is part of what is
measured. The setting raised: MCPADMIN_SOCKETS_PER_USER.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import orjson

from tests.benchmarks.bench_path import running
from tests.benchmarks.load import percentile
from tests.e2e.sockets import Visitor, greeted
from tests.tools.stack import ROOT, Stack

SOCKETS = (100, 500)
GOALS = {100: 50.0}
PAUSE_SECONDS = 0.2
CATCH_UP_SECONDS = 30.0
#: writes one event a line of stdin; its subject is the clock right before the commit
RECORDER = """
import sys, time
import django
django.setup()
from django.db import transaction
from servers.audit.record import SYSTEM, Event, record_many
from servers.enums import AuditAction, AuditOutcome
for line in sys.stdin:
    with transaction.atomic():
        subject = f"bench {time.time_ns()}"
        record_many([Event(AuditAction.USER_CHANGE, AuditOutcome.OK, SYSTEM, subject=subject)])
    print("done", flush=True)
"""


class Listener:
    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.latencies: list[float] = []

    async def read(self) -> None:
        async for text in self.socket:
            now = time.time_ns()
            for row in orjson.loads(text).get("rows") or ():
                if row["subject"].startswith("bench "):
                    self.latencies.append((now - int(row["subject"][6:])) / 1_000_000)


@asynccontextmanager
async def listeners(product: Stack, count: int) -> AsyncIterator[list[Listener]]:
    async with AsyncExitStack() as stack:
        visitor = await asyncio.to_thread(Visitor, product)
        stack.callback(visitor.close)
        made = [Listener(await stack.enter_async_context(greeted(product, visitor))) for _ in range(count)]
        for one in made:
            await one.socket.send('{"op": "sub", "topics": {"audit": null}}')
        reading = [asyncio.create_task(one.read()) for one in made]
        await asyncio.sleep(1)  # all are synced
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
    process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(20)


def write_one(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline(), "the recorder ended"


async def one_round(heard: list[Listener], process: "subprocess.Popen[str]", events: int) -> list[float]:
    """Milliseconds of each event at each socket, in order of size."""
    for one in heard:
        one.latencies.clear()
    for _ in range(events):
        await asyncio.to_thread(write_one, process)
        await asyncio.sleep(PAUSE_SECONDS)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while any(len(one.latencies) < events for one in heard) and time.monotonic() < deadline:  # noqa: ASYNC110  sockets fill lists
        await asyncio.sleep(0.05)
    missed = sum(events - len(one.latencies) for one in heard)
    if missed:
        raise RuntimeError(f"{missed} events never came to a socket")
    return sorted(latency for one in heard for latency in one.latencies)


async def measure(product: Stack, count: int, rounds: int, events: int) -> list[list[float]]:
    with recorder(product) as process:
        async with listeners(product, count) as heard:
            await one_round(heard, process, 3)  # warms up
            return [await one_round(heard, process, events) for _ in range(rounds)]


def show(count: int, rounds: list[list[float]]) -> None:
    p50 = [percentile(one, 0.5) for one in rounds]
    p99 = [percentile(one, 0.99) for one in rounds]
    print(f"{count:>5} sockets: p50 {statistics.median(p50):.1f} ms ({min(p50):.1f}-{max(p50):.1f}), ", end="")
    print(f"p99 {statistics.median(p99):.1f} ms ({min(p99):.1f}-{max(p99):.1f})")
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

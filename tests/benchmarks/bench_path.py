"""Measures the whole path of a call, browser socket to browser socket, next to the client's own call in the same run.

python -m tests.benchmarks.bench_path [--rounds N] [--seconds S]

The product runs as shipped: durable rows, limits and guards on, nothing raised, five accounts with ten sockets each. A
single caller rotates through the sockets, because a socket may request only twenty topics a second. The direct client
is a separate process with a server of the same kind. Load generator, web, worker, broker and server share the machine.
"""

import argparse
import asyncio
import itertools
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.drivers import Driver, http_server, stdio_command
from tests.benchmarks.load import percentile
from tests.benchmarks.product import SOCKETS_EACH, Caller, Cpu, accounts, callers, echo_servers
from tests.tools.prepared import prepare
from tests.tools.stack import Stack

PEOPLE = 5
COUNTS = (1, 50)
WARM_UP_SECONDS = 2.0
#: (transport, callers) -> the goal for the measure
P50_GOALS = {("stdio", 1): 5.0, ("http", 1): 6.0}
RATE_GOALS = {("stdio", 50): 400.0, ("http", 50): 330.0}
#: CPU of the web process alone where many call, of web and worker where one does: milliseconds a call
WEB_CPU_GOALS = {("stdio", 50): 2.0}
BOTH_CPU_GOALS = {("stdio", 1): 6.0}
Row = dict[str, float]
Rows = dict[tuple[str, int], list[Row]]


@contextmanager
def running(**settings: str) -> Iterator[Stack]:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stop what the run started, also on SIGTERM
    on_sqlite = "DATABASE_URL" not in settings
    directory = prepare(Path(tempfile.mkdtemp(prefix="mcpadmin-bench-")), database=on_sqlite, administrator=on_sqlite)
    product = Stack(directory, env=settings)
    try:
        product.start()
        if not on_sqlite:
            product.create_admin()
        yield product
    finally:
        product.stop()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def direct_clients() -> Iterator[dict[str, Driver]]:
    """Our client alone, as bench_client measures it."""
    with http_server("legacy") as base, ExitStack() as stack:
        where = {"stdio": stdio_command("legacy"), "http": [f"{base}/mcp"]}
        command = [sys.executable, "-m", "tests.benchmarks.drive_ours"]
        made = {kind: Driver(command, [kind, "legacy", *words]) for kind, words in where.items()}
        for driver in made.values():
            stack.callback(driver.close)
        yield made


async def whole_path(sockets: list[Caller], server: str, count: int, seconds: float, cpu: Cpu) -> Row:
    latencies: list[float] = []
    turns = itertools.cycle(sockets)
    clock = time.perf_counter
    cpu.since()
    began = clock()
    ends = began + seconds

    async def caller(own: Caller | None) -> None:
        while (now := clock()) < ends:
            if await (own or next(turns)).call(server):
                latencies.append((clock() - now) * 1000)

    await asyncio.gather(*(caller(None if count == 1 else sockets[number]) for number in range(count)))
    took, used = clock() - began, cpu.since()
    if not latencies:
        raise RuntimeError(f"every call was refused: {sockets[0].refused}")
    latencies.sort()
    row = {"rate": len(latencies) / took, "p50": percentile(latencies, 0.5), "p99": percentile(latencies, 0.99)}
    row |= {f"cpu {name}": 1000 * spent / len(latencies) for name, spent in used.items()}
    return row | {"web and worker": row["cpu web"] + row["cpu worker"]}


async def measure(product: Stack, rounds: int, seconds: float) -> tuple[Rows, Rows]:
    whole: Rows = {}
    direct: Rows = {}
    people = await asyncio.to_thread(accounts, product, PEOPLE)
    with echo_servers(product) as servers, direct_clients() as drivers:
        async with callers(product, people) as sockets:
            cpu = Cpu(product)
            for number in range(rounds + 1):  # the first round warms up
                lasting = seconds if number else min(seconds, WARM_UP_SECONDS)
                for count, (kind, server) in itertools.product(COUNTS, servers.items()):
                    row = await whole_path(sockets, server, count, lasting, cpu)
                    alone = await asyncio.to_thread(drivers[kind].run, count, min(1.0, lasting))
                    if number:
                        whole.setdefault((kind, count), []).append(row)
                        direct.setdefault((kind, count), []).append(alone)
    return whole, direct


def spread(rows: list[Row], column: str) -> tuple[float, float, float]:
    """Median, minimum and maximum of the rounds."""
    values = [row[column] for row in rows]
    return statistics.median(values), min(values), max(values)


def show(whole: Rows, direct: Rows) -> None:
    print(
        f"{'transport':<10}{'callers':>8}{'calls/s':>10}{'(rounds)':>16}{'p50 ms':>9}{'(rounds)':>16}{'p99 ms':>9}",
        end="",
    )
    print(f"{'direct p50':>12}{'ratio':>8}{'direct calls/s':>16}")
    for (kind, count), rows in whole.items():
        rate, low, high = spread(rows, "rate")
        p50, best, worst = spread(rows, "p50")
        alone, alone_rate = spread(direct[kind, count], "p50")[0], spread(direct[kind, count], "rate")[0]
        print(
            f"{kind:<10}{count:>8}{rate:>10.0f}{f'{low:.0f}-{high:.0f}':>16}{p50:>9.2f}{f'{best:.2f}-{worst:.2f}':>16}",
            end="",
        )
        print(f"{spread(rows, 'p99')[0]:>9.1f}{alone:>12.3f}{p50 / alone:>8.1f}{alone_rate:>16.0f}")
    print("\nCPU of each process, milliseconds a call (median)")
    for (kind, count), rows in whole.items():
        used = {name.removeprefix("cpu "): spread(rows, name)[0] for name in rows[0] if name.startswith("cpu ")}
        told = ", ".join(f"{name} {value:.2f}" for name, value in used.items())
        print(f"  {kind}, {count}: {told}; together {sum(used.values()):.2f}")
    print()
    goals = (
        ("p50", "ms", "p50", P50_GOALS, True),
        ("calls/s", "", "rate", RATE_GOALS, False),
        ("CPU of the web", "ms a call", "cpu web", WEB_CPU_GOALS, True),
        ("CPU of web and worker", "ms a call", "web and worker", BOTH_CPU_GOALS, True),
    )
    for name, unit, column, wanted, most in goals:
        digits = 0 if column == "rate" else 2
        for (kind, count), goal in wanted.items():
            words = (
                f"{name}, {kind}, {count} callers: {{:.{digits}f}} {unit}".rstrip() + f", best round {{:.{digits}f}}"
            )
            judge(words, whole[kind, count], column, goal, most=most)


def judge(words: str, rows: list[Row], column: str, goal: float, *, most: bool) -> None:
    median, low, high = spread(rows, column)
    met = median <= goal if most else median >= goal
    bound = "at most" if most else "at least"
    print(f"  {'met   ' if met else 'MISSED'} {words.format(median, low if most else high)} (goal: {bound} {goal:g})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with running() as product:
        whole, direct = asyncio.run(measure(product, options.rounds, options.seconds))
    print(
        f"{PEOPLE} accounts with {SOCKETS_EACH} sockets each; {options.rounds} rounds of {options.seconds:g} s, medians"
    )
    show(whole, direct)


if __name__ == "__main__":
    main()

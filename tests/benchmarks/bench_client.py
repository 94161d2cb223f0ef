"""Compares our client with the official Python SDK's and with the floor, on the smallest possible servers, in one run.

python -m tests.benchmarks.bench_client [--rounds N] [--seconds S] [cases...]

Every client runs in a separate process and stays connected. They take turns of a second each, round after round, so
that a busy machine slows all of them equally. Numbers are medians of the rounds. CPU covers the client's process only.
Goals are printed as met or missed; no timing makes the run fail.
"""

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.benchmarks.drivers import Driver, http_server, stdio_command
from tests.peers.peers import HERE as PEERS

CALLERS = (1, 50)
WARM_UP = 0.3
OURS, SDK = "ours", "sdk"
SDK_PYTHON = PEERS / ".venv-sdk2" / "bin" / "python"
#: (client, number of callers) -> one row per round
Rows = dict[tuple[str, int], list[dict[str, float]]]


@dataclass(frozen=True)
class Goal:
    """A ratio of medians and the bound it should meet."""

    words: str
    of: tuple[str, int, str]
    to: tuple[str, int, str]
    bound: float
    at_least: bool = False

    def line(self, rows: Rows) -> str:
        ratio = median(rows, *self.of) / median(rows, *self.to)
        undisturbed = best(rows, *self.of) / best(rows, *self.to)
        met = ratio >= self.bound if self.at_least else ratio <= self.bound
        sign = "at least" if self.at_least else "at most"
        return f"  {'met   ' if met else 'MISSED'} {self.words}: {ratio:.2f}, best rounds {undisturbed:.2f} (goal: {sign} {self.bound:g})"


def goals(floor: str, throughput: float, p50_at_1: float, p50_at_50: float) -> list[Goal]:
    against = [
        Goal("calls/s, 50 callers, to the SDK", (OURS, 50, "rate"), (SDK, 50, "rate"), throughput, at_least=True),
        Goal("p50, 1 caller, to the SDK", (OURS, 1, "p50"), (SDK, 1, "p50"), p50_at_1),
        Goal("p50, 50 callers, to the SDK", (OURS, 50, "p50"), (SDK, 50, "p50"), p50_at_50),
    ]
    cpu = [
        Goal(f"CPU a call, {count} callers, to {floor}", (OURS, count, "cpu"), (floor, count, "cpu"), 1.3)
        for count in CALLERS
    ]
    return against + (cpu if floor else [])


@dataclass(frozen=True)
class Case:
    name: str
    transport: str
    era: str
    floors: tuple[str, ...]
    goals: tuple[Goal, ...]
    reply: str = "json"

    @contextmanager
    def server(self) -> Iterator[list[str]]:
        """The target of the clients: a command that each starts, or the URL of a shared server."""
        if self.transport == "stdio":
            yield stdio_command(self.era)
        else:
            with http_server(self.era, "--reply", self.reply) as url:
                yield [f"{url}/mcp"]


PIPES = ("pipes", "asyncio-pipes")
HTTP = ("engine", "httpx+aiohttp", "httpx")
STDIO_GOALS = tuple(goals("", 8, 0.6, 0.5))
HTTP_GOALS = tuple(goals("httpx+aiohttp", 3, 0.85, 0.4))
CASES = (
    Case("stdio-legacy", "stdio", "legacy", PIPES, STDIO_GOALS),
    Case("stdio-modern", "stdio", "modern", PIPES, STDIO_GOALS),
    Case("http-legacy", "http", "legacy", HTTP, HTTP_GOALS),
    Case("http-modern", "http", "modern", HTTP, HTTP_GOALS),
    Case("http-legacy-sse", "http", "legacy", HTTP, HTTP_GOALS, reply="sse"),
    Case("http-modern-sse", "http", "modern", HTTP, HTTP_GOALS, reply="sse"),
)


def driver(client: str, case: Case, where: list[str]) -> Driver:
    words = [case.transport, case.era, *where]
    if client == OURS:
        return Driver([sys.executable, "-m", "tests.benchmarks.drive_ours"], words)
    if client == SDK:
        return Driver([str(SDK_PYTHON), "tests/benchmarks/drive_sdk.py"], words)
    return Driver([sys.executable, "-m", "tests.benchmarks.drive_floor", client], [case.era, *where])


def measure(case: Case, rounds: int, seconds: float) -> Rows:
    rows: Rows = {}
    with case.server() as where, ExitStack() as stack:
        drivers = {}
        for client in (OURS, SDK, *case.floors):
            drivers[client] = driver(client, case, where)
            stack.callback(drivers[client].close)
        for number in range(rounds + 1):  # the first round warms up
            for callers in CALLERS:
                for client, one in drivers.items():
                    row = one.run(callers, seconds if number else WARM_UP)
                    if number:
                        rows.setdefault((client, callers), []).append(row)
    return rows


def median(rows: Rows, client: str, callers: int, column: str) -> float:
    return statistics.median(row[column] for row in rows[client, callers])


def best(rows: Rows, client: str, callers: int, column: str) -> float:
    """The value of the round with the least interference from other processes."""
    values = [row[column] for row in rows[client, callers]]
    return max(values) if column == "rate" else min(values)


def table(case: Case, rows: Rows) -> None:
    print(f"\n{case.name}: echo tool, median of {len(rows[OURS, 1])} rounds (best rate of them)")
    print(f"  {'client':<15}{'callers':>8}{'calls/s':>10}{'(best)':>10}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms/call':>13}")
    for client in (OURS, SDK, *case.floors):
        for callers in CALLERS:
            rate, p50, p99, cpu = (median(rows, client, callers, name) for name in ("rate", "p50", "p99", "cpu"))
            top = f"({best(rows, client, callers, 'rate'):.0f})"
            print(f"  {client:<15}{callers:>8}{rate:>10.0f}{top:>10}{p50:>9.3f}{p99:>9.3f}{cpu:>13.4f}")
    for goal in case.goals:
        print(goal.line(rows))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help=", ".join(case.name for case in CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    for case in CASES:
        if not options.cases or case.name in options.cases:
            table(case, measure(case, options.rounds, options.seconds))


if __name__ == "__main__":
    main()

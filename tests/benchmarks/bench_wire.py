"""What recording the wire costs: the path of a call with recording off, headers only and full, alternating in one run.

python -m tests.benchmarks.bench_wire [--rounds N] [--seconds S] [--callers N]

Conditions and callers are those of bench_path. CPU is that of web and worker together.
"""

import argparse
import asyncio
import itertools
import statistics

from tests.benchmarks.bench_path import PEOPLE, WARM_UP_SECONDS, Row, running, spread, whole_path
from tests.benchmarks.product import Cpu, accounts, callers, echo_servers
from tests.tools.stack import Stack

LEVELS = ("off", "headers", "full")
#: milliseconds of CPU a call, of which search and sealing take a part too
GOAL = 0.7
#: a worker notices the setting with its next tick
NOTICED_SECONDS = 4.0
_COUNT = "SELECT COUNT(*) AS n, COALESCE(SUM(kind = 'dropped'), 0) AS notices FROM mcp_sessions_wiremessage"
Rows = dict[tuple[str, str], list[Row]]


async def measure(product: Stack, rounds: int, seconds: float, count: int) -> Rows:
    found: Rows = {}
    people = await asyncio.to_thread(accounts, product, PEOPLE)
    with echo_servers(product) as servers:
        async with callers(product, people) as sockets:
            cpu = Cpu(product)
            for number in range(rounds + 1):  # the first round warms up
                for level in LEVELS[number % 3 :] + LEVELS[: number % 3]:
                    product.write("UPDATE servers_server SET recording = ?", level)
                    await asyncio.sleep(NOTICED_SECONDS)
                    for kind, server in servers.items():
                        before = product.rows(_COUNT)[0]["n"]
                        lasting = seconds if number else min(seconds, WARM_UP_SECONDS)
                        row = await whole_path(sockets, server, count, lasting, cpu)
                        calls = row["rate"] * lasting
                        row["rows a call"] = (product.rows(_COUNT)[0]["n"] - before) / calls
                        if number:
                            found.setdefault((kind, level), []).append(row)
    print(f"rows that say that messages were dropped: {product.rows(_COUNT)[0]['notices']}")
    return found


def used(row: Row) -> float:
    return row["cpu web"] + row["cpu worker"]


def show(found: Rows) -> None:
    print(
        f"{'transport':<10}{'recording':>10}{'calls/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'(rounds)':>14}{'rows':>7}"
    )
    for (kind, level), rows in found.items():
        cpu = [used(row) for row in rows]
        numbers = f"{spread(rows, 'rate')[0]:>9.0f}{spread(rows, 'p50')[0]:>9.2f}{spread(rows, 'p99')[0]:>9.1f}"
        bounds = f"{min(cpu):.2f}-{max(cpu):.2f}"
        rows_a_call = spread(rows, "rows a call")[0]
        print(f"{kind:<10}{level:>10}{numbers}{statistics.median(cpu):>9.2f}{bounds:>14}{rows_a_call:>7.1f}")
    for kind, level in itertools.product(dict.fromkeys(kind for kind, _ in found), LEVELS[1:]):
        differences = [used(row) - used(off) for row, off in zip(found[kind, level], found[kind, "off"], strict=True)]
        more = statistics.median(differences)
        print(
            f"  {'met   ' if more <= GOAL else 'MISSED'} {kind}, {level}: {more:+.2f} ms CPU a call (goal: at most {GOAL:g})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--callers", type=int, default=50)
    options = parser.parse_args()
    with running() as product:
        found = asyncio.run(measure(product, options.rounds, options.seconds, options.callers))
    print(f"{options.callers} callers; {options.rounds} rounds of {options.seconds:g} s, medians")
    show(found)


if __name__ == "__main__":
    main()

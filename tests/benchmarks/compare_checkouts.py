"""Compares the path of a call in this checkout with that of another one, in the same run.

python -m tests.benchmarks.compare_checkouts OTHER [--pairs N] [--seconds S]

Both products run at once, and short bursts of calls alternate between them. The speed of a shared machine may change by
half within minutes, but it hardly changes between the two bursts of a pair: the median of the pairs' ratios shows a
difference of a few percent. Both use the Python of this checkout.
"""

import argparse
import asyncio
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.drivers import Driver

THIS = Path(__file__).resolve()
LOADS = (("stdio", 50), ("http", 50), ("stdio", 1), ("http", 1))
COLUMNS = ("cpu web", "cpu worker", "p50", "rate")
WARM_UP_SECONDS = 2.0
#: a product starts, registers two servers and opens fifty sockets
START_SECONDS = 120.0


async def serve() -> None:
    """Run the product of the checkout that is on the path. Each line of stdin is a load; its row goes to stdout."""
    # From that checkout, which may be older than this file.
    from tests.benchmarks.bench_path import PEOPLE, running, whole_path  # noqa: PLC0415  # needed by this process only
    from tests.benchmarks.product import Cpu, accounts, callers, echo_servers  # noqa: PLC0415  # as above

    with running() as product:
        people = await asyncio.to_thread(accounts, product, PEOPLE)
        with echo_servers(product) as servers:
            async with callers(product, people) as sockets:
                cpu = Cpu(product)
                while line := await asyncio.to_thread(sys.stdin.readline):
                    load = json.loads(line)
                    row = await whole_path(sockets, servers[load["kind"]], load["callers"], load["seconds"], cpu)
                    print(json.dumps(row), flush=True)


def compare(this: Driver, other: Driver, pairs: int, seconds: float) -> None:
    for one in (this, other):
        one.run(50, WARM_UP_SECONDS, kind="stdio", patience=START_SECONDS)
    print(f"{'transport':<10}{'callers':>8}  {'':<12}{'other':>9}{'this':>9}{'ratio':>8}{'(middle half)':>16}")
    for kind, count in LOADS:
        ours, theirs = [], []
        for number in range(pairs):
            turns = [(this, ours), (other, theirs)]
            for one, rows in turns if number % 2 else reversed(turns):
                rows.append(one.run(count, seconds, kind=kind))
        for column in COLUMNS:
            ratios = sorted(new[column] / old[column] for new, old in zip(ours, theirs, strict=True))
            old, new = (statistics.median(row[column] for row in rows) for rows in (theirs, ours))
            middle = f"{ratios[len(ratios) // 4]:.2f}-{ratios[3 * len(ratios) // 4]:.2f}"
            print(
                f"{kind:<10}{count:>8}  {column:<12}{old:>9.2f}{new:>9.2f}{statistics.median(ratios):>8.3f}{middle:>16}"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, str(THIS), "--serve"]
    with ExitStack() as stack:
        drivers = []
        for checkout in (THIS.parents[2], options.other.resolve()):
            drivers.append(Driver(command, [str(checkout)], checkout, PYTHONPATH=str(checkout)))
            stack.callback(drivers[-1].close)
        compare(*drivers, options.pairs, options.seconds)


if __name__ == "__main__":
    main()

"""Compares the path of a call in this checkout with that of another one, in the same run.

python -m tests.benchmarks.compare_checkouts OTHER [--pairs N] [--seconds S]

Both products run at once, and short bursts of calls alternate between them. The speed of a shared machine may change by
half within minutes, but it hardly changes between the two bursts of a pair: the median of the pairs' ratios shows a
difference of a few percent. Both use the Python of this checkout.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

THIS = Path(__file__).resolve()
LOADS = (("stdio", 50), ("http", 50), ("stdio", 1), ("http", 1))
COLUMNS = ("cpu web", "cpu worker", "p50", "rate")
READY = "ready"
WARM_UP_SECONDS = 2.0
Row = dict[str, float]


async def serve() -> None:
    """Run the product of the checkout that is on the path. Each line of stdin, "transport callers seconds", is answered
    with one row as JSON."""
    from tests.benchmarks.bench_path import PEOPLE, running, whole_path  # noqa: PLC0415  # of that checkout
    from tests.benchmarks.product import Cpu, accounts, callers, echo_servers  # noqa: PLC0415

    with running() as product:
        people = await asyncio.to_thread(accounts, product, PEOPLE)
        with echo_servers(product) as servers:
            async with callers(product, people) as sockets:
                cpu = Cpu(product)
                print(READY, flush=True)
                while line := await asyncio.to_thread(sys.stdin.readline):
                    kind, count, seconds = line.split()
                    row = await whole_path(sockets, servers[kind], int(count), float(seconds), cpu)
                    print(json.dumps(row), flush=True)


class Product:
    """The product of one checkout."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def burst(self, kind: str, count: int, seconds: float) -> Row:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind} {count} {seconds}\n")
        self._process.stdin.flush()
        row: Row = json.loads(self._line())
        return row

    def wait_until_ready(self) -> None:
        while self._line().strip() != READY:
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the product ended with status {self._process.wait()}")
        return line


@contextmanager
def product_of(checkout: Path) -> Iterator[Product]:
    process = subprocess.Popen(
        [sys.executable, str(THIS), "--serve", str(checkout)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Product(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def compare(this: Product, other: Product, pairs: int, seconds: float) -> None:
    for one in (this, other):
        one.wait_until_ready()
    for one in (this, other):
        one.burst(*LOADS[0], WARM_UP_SECONDS)
    print(f"{'transport':<10}{'callers':>8}  {'':<12}{'other':>9}{'this':>9}{'ratio':>8}{'(pairs)':>16}")
    for kind, count in LOADS:
        found: list[tuple[Row, Row]] = []
        for number in range(pairs):
            order = (this, other) if number % 2 else (other, this)
            rows = {id(one): one.burst(kind, count, seconds) for one in order}
            found.append((rows[id(this)], rows[id(other)]))
        for column in COLUMNS:
            ratios = sorted(ours[column] / theirs[column] for ours, theirs in found)
            old = statistics.median(theirs[column] for _, theirs in found)
            new = statistics.median(ours[column] for ours, _ in found)
            spread = f"{ratios[len(ratios) // 4]:.2f}-{ratios[3 * len(ratios) // 4]:.2f}"
            print(
                f"{kind:<10}{count:>8}  {column:<12}{old:>9.2f}{new:>9.2f}{statistics.median(ratios):>8.3f}{spread:>16}"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("other", type=Path)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return asyncio.run(serve())
    with ExitStack() as stack:
        this, other = (stack.enter_context(product_of(path)) for path in (THIS.parents[2], options.other.resolve()))
        compare(this, other, options.pairs, options.seconds)
    return None


if __name__ == "__main__":
    main()

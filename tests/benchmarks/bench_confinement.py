"""Measures what confining a stdio server costs: time to its first answer and memory, confined and not, and many at once.

python -m tests.benchmarks.bench_confinement [--rounds N] [--many N]

The server is the echo server of the other benchmarks, which imports little: the start itself is measured. No number makes the run fail except
that all of the many are open at the same time.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from sessions.mcp.transports.registry import StdioSpec
from sessions.mcp.transports.stdio import Confinement, Network, confines, isolation, prepare_loop, user
from tests.benchmarks.drivers import stdio_command
from tests.sessions.mcp.transports.making import connected
from tests.tools.stack import proportional_mib

ROUNDS, MANY, TOGETHER = 30, 200, 10


def spec(folder: Path, number: int, *, confined: bool) -> StdioSpec:
    command, *arguments = stdio_command("legacy")
    if not confined:
        return StdioSpec(command, tuple(arguments))
    own, uid = folder / str(number), user(number)
    for name in ("home", "tmp", "view"):
        (own / name).mkdir(parents=True, exist_ok=True)
        if uid and name != "view":
            os.chown(own / name, uid, uid)
    places = [str(own / name) for name in ("home", "tmp", "view")]
    confinement = Confinement(*places, uid=uid, network=Network.PUBLIC, limits={"NPROC": 1200, "CORE": 0})
    return StdioSpec(command, tuple(arguments), confinement=confinement)


async def start_seconds(one: StdioSpec) -> float:
    begin = time.perf_counter()
    async with connected(one, era="legacy"):
        return time.perf_counter() - begin


async def many(folder: Path, count: int, *, confined: bool) -> tuple[float, float]:
    """Seconds until all are open, and MiB for each of the children's trees."""
    gate = asyncio.Semaphore(TOGETHER)
    async with contextlib.AsyncExitStack() as stack:

        async def one(number: int) -> None:
            async with gate:
                await stack.enter_async_context(connected(spec(folder, number, confined=confined), era="legacy"))

        before, begin = proportional_mib(os.getpid()), time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(count)))
        seconds = time.perf_counter() - begin
        children = psutil.Process().children(recursive=True)
        memory = sum(map(proportional_mib, (child.pid for child in children)))
        ours = proportional_mib(os.getpid()) - before
        return seconds, (memory + ours) / count


async def run(rounds: int, count: int) -> None:
    prepare_loop(asyncio.get_running_loop())
    found = await confines()
    print(f"confined by {found.tier}{' with a view' if found.view else ''}; held by {await isolation()}")
    with tempfile.TemporaryDirectory(prefix="mcpadmin-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for number in range(rounds):  # by turns, so that both see the same load
            for confined, times in seconds.items():
                times.append(await start_seconds(spec(folder, number, confined=confined)))
        p50 = {confined: statistics.median(times) * 1000 for confined, times in seconds.items()}
        print(
            f"start, p50 of {rounds}: {p50[False]:.1f} ms unconfined, {p50[True]:.1f} ms confined, +{p50[True] - p50[False]:.1f} ms (wanted: 50)"
        )
        rows = {confined: await many(folder, count, confined=confined) for confined in (False, True)}
        for confined, (took, mib) in rows.items():
            print(
                f"{count} at once, {'confined' if confined else 'unconfined'}: open after {took:.1f} s, {mib:.2f} MiB each"
            )
        print(f"memory: +{rows[True][1] - rows[False][1]:.2f} MiB a server (wanted: 3)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--many", type=int, default=MANY)
    given = parser.parse_args()
    asyncio.run(run(given.rounds, given.many))


if __name__ == "__main__":
    main()

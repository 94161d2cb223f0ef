"""Measures what confining a stdio server costs: time to its first answer and memory, confined and not, and many at once.

python -m tests.benchmarks.bench_confinement [--rounds N] [--many N] [--runtime "podman …"]

Confined by the best tier here, and as for an ordinary user without namespaces, where each server has a keeper; with
--runtime also in containers. Memory is proportional (PSS) and counts everything below this process. The server is the echo server of the other benchmarks, which imports little: the start itself is measured. No number makes the run fail except
that all of the many are open at the same time.
"""

import argparse
import asyncio
import contextlib
import os
import shlex
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from sessions.mcp.transports.registry import StdioSpec
from sessions.mcp.transports.stdio import (
    Confinement,
    MachineConfinement,
    Network,
    Runtime,
    Tier,
    confines,
    isolation,
    prepare_loop,
    tiers,
    user,
)
from tests.benchmarks.drivers import stdio_command
from tests.sessions.mcp.transports.making import connected
from tests.tools.stack import proportional_mib

ROUNDS, MANY, TOGETHER = 30, 200, 10


#: how an ordinary user is confined where there are no namespaces
KEPT = MachineConfinement(Tier.LANDLOCK, view=False)


def spec(folder: Path, number: int, found: MachineConfinement | None) -> StdioSpec:
    command, *arguments = stdio_command("legacy")
    if found is None:
        return StdioSpec(command, tuple(arguments))
    tiers._found = found
    own, uid = folder / str(number), None if found is KEPT else user(number)
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


async def many(folder: Path, count: int, found: MachineConfinement | None) -> tuple[float, float]:
    """Seconds until all are open, and MiB for each of the children's trees and what their containers need."""
    gate = asyncio.Semaphore(TOGETHER)
    async with contextlib.AsyncExitStack() as stack:

        async def one(number: int) -> None:
            async with gate:
                await stack.enter_async_context(connected(spec(folder, number, found), era="legacy"))

        before, begin = proportional_mib(os.getpid()), time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(count)))
        seconds = time.perf_counter() - begin
        children = [
            *psutil.Process().children(recursive=True),
            *(_of_containers() if found and found.tier is Tier.CONTAINER else ()),
        ]
        memory = sum(map(proportional_mib, (child.pid for child in children)))
        ours = proportional_mib(os.getpid()) - before
        return seconds, (memory + ours) / count


def _of_containers() -> list[psutil.Process]:
    """Runtimes start them outside of our tree, each below a monitor that has its name."""
    found = list[psutil.Process]()
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "conmon" and "mcpadmin-" in " ".join(process.info["cmdline"] or ()):
            found += [process, *process.children(recursive=True)]
    return found


def runtime_seconds(runtime: str, folder: Path) -> float:
    """How long the runtime alone takes to start a container without our code."""
    root = folder / "root"
    root.mkdir(exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    words = ["run", "--detach", "--rm", "--network", "host", "--read-only", "--log-driver", "none", "--cap-drop", "ALL"]
    words += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--volume", "/usr:/usr:ro"]
    begin = time.perf_counter()
    subprocess.run(
        [*shlex.split(runtime), *words, "--rootfs", str(root), "/usr/bin/true"], check=True, capture_output=True
    )
    return time.perf_counter() - begin


async def run(rounds: int, count: int, runtime: str) -> None:
    prepare_loop(asyncio.get_running_loop())
    held, best = await isolation(), await confines()
    modes: dict[str, MachineConfinement | None] = {
        "unconfined": None,
        f"{best.tier}{' with a view' if best.view else ''}": best,
    }
    modes["with a keeper"] = KEPT
    if runtime:
        found = await tiers._probed(Runtime(tuple(shlex.split(runtime))))
        print(found.reason or f"in containers of {runtime}")
        modes |= {"in a container": found} if found.tier is Tier.CONTAINER else {}
    print(f"held by {held}; wanted beside unconfined: 50 ms, 3 MiB")
    with tempfile.TemporaryDirectory(prefix="mcpadmin-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        seconds: dict[str, list[float]] = {mode: [] for mode in modes}
        for number in range(rounds):  # interleaved, so that all run under the same load
            for mode, found in modes.items():
                seconds[mode].append(await start_seconds(spec(folder, number, found)))
        if "in a container" in modes:
            alone = statistics.median(
                [await asyncio.to_thread(runtime_seconds, runtime, folder) for _ in range(rounds)]
            )
            print(f"the runtime alone, an empty container: p50 {alone * 1000:.1f} ms")
        p50 = {mode: statistics.median(times) * 1000 for mode, times in seconds.items()}
        base = 0.0
        for mode, found in modes.items():
            took, mib = await many(folder, count, found)
            base = base or mib
            print(
                f"{mode}: start p50 of {rounds} {p50[mode]:.1f} ms (+{p50[mode] - p50['unconfined']:.1f}); "
                f"{count} open after {took:.1f} s, {mib:.2f} MiB each (+{mib - base:.2f})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--many", type=int, default=MANY)
    parser.add_argument("--runtime", default="")
    given = parser.parse_args()
    asyncio.run(run(given.rounds, given.many, given.runtime))


if __name__ == "__main__":
    main()

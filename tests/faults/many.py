"""A thousand HTTP sessions and two hundred stdio ones on one worker: how long they take to open, what they cost, and
what is left when the worker is killed.
"""

import asyncio
import sys
import time

import psutil

from tests.benchmarks.drivers import HERE, http_server
from tests.faults import holdings
from tests.faults.plant import Plant, plant, until
from tests.faults.size import Report, Size

OPEN_SECONDS, GONE_SECONDS = 60.0, 10.0
IDLE_SECONDS = 20.0
ECHO = str(HERE / "echo_stdio.py")


async def many_sessions(size: Size, http: int = 1_000, stdio: int = 200) -> tuple[list[str], Report]:
    return await asyncio.to_thread(_many_sessions, size, size.count(http, 20), size.count(stdio, 5))


def _many_sessions(size: Size, http: int, stdio: int) -> tuple[list[str], Report]:
    report = Report("many sessions", size)
    with http_server("legacy", "--listen") as base, plant(times={}) as running:
        pid = running.start_worker()
        before = holdings.of(pid)
        opened = _opened(running, http, stdio, base)
        idle, cpu = holdings.of(pid), _idle_cpu(pid, size.seconds(IDLE_SECONDS, 5))
        family = holdings.family_mib(pid)
        below = psutil.Process(pid).children(recursive=True)
        gone, left = _killed(running, below)
    report.say(http=http, stdio=stdio, opened_after_seconds=opened, killed_after_seconds=gone)
    report.say(mib_of_the_worker=f"{before['mib']} empty, {idle['mib']} full", mib_with_children=round(family))
    report.say(descriptors=f"{before['descriptors']} empty, {idle['descriptors']} full", threads=idle["threads"])
    report.say(processes=len(below), idle_cpu_percent=cpu)
    wrong = [f"left alive: {left}"] * bool(left)
    wrong += [f"open only after {opened:.1f} s"] * (opened > size.promise(OPEN_SECONDS))
    return wrong + [f"gone only after {gone:.1f} s"] * (gone > size.promise(GONE_SECONDS)), report


def _opened(running: Plant, http: int, stdio: int, base: str) -> float:
    """Seconds from registration until the last session is ready."""
    arguments = ["-S", "-E", ECHO, "legacy"]
    began = time.monotonic()
    running.do("register_many", "web", http, url=f"{base}/mcp", era="legacy")
    running.do("register_many", "pipe", stdio, command=sys.executable, arguments=arguments, era="legacy")
    total = http + stdio
    until(
        lambda: running.do("states").get("ready", 0) == total,
        4 * OPEN_SECONDS,
        f"never all ready: {running.do('states')}",
    )
    return time.monotonic() - began


def _idle_cpu(pid: int, seconds: float) -> float:
    """Percent of one core, measured after a pause in which the worker reads the lists."""
    time.sleep(seconds)
    began = holdings.cpu_seconds(pid)
    time.sleep(seconds)
    return 100 * (holdings.cpu_seconds(pid) - began) / seconds


def _killed(running: Plant, below: list[psutil.Process]) -> tuple[float, list[str]]:
    """Send SIGKILL. Returns the seconds until no child runs any more, and the children still running."""
    began = time.monotonic()
    running.kill_worker()
    _, alive = psutil.wait_procs(below, timeout=3 * GONE_SECONDS)
    return time.monotonic() - began, [f"{process.pid} {process.name()}" for process in alive]

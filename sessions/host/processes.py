"""What the children of stdio sessions use: sampled off the loop, written only on a noticeable change.

One scan of the process table serves all sessions of the worker. Only process names are kept: arguments may contain
secrets.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psutil
import structlog
from django.conf import settings

from sessions.connections import lifecycle
from sessions.connections.process_page import disk_excess, excess, warnings
from sessions.host.db import Database
from sessions.host.disk import DiskMeter
from sessions.host.open_session import OpenSession
from sessions.mcp.core.errors import Fault, TransportError
from sessions.mcp.transports.registry import StdioSpec

SAMPLE_SECONDS, QUIET_SECONDS, STALE_SECONDS = 5.0, 15.0, 60.0
ROWS, DEPTH, NAME_CHARS = 20, 3, 60
#: processes examined in one tree; further ones are only counted
LOOKED_AT = 300
#: written at once: a change of memory by this share, or of the CPU by this many percentage points
NEWS_SHARE, NEWS_POINTS = 0.1, 10.0
log = structlog.get_logger(__name__)
Usage = dict[str, Any]


class Sampler:
    """Measures the process trees below some roots. Only one thread, its own, uses it."""

    def __init__(self) -> None:
        self._cpu: dict[tuple[int, float], tuple[float, float]] = {}

    def take(self, roots: Iterable[int]) -> dict[int, Usage]:
        """The usage of each root, without roots that are gone."""
        below, before = _children(), self._cpu
        self._cpu = {}
        trees = {root: _tree(root, below) for root in roots}
        usages = {root: self._usage(tree, before) for root, tree in trees.items()}
        return {root: usage for root, usage in usages.items() if usage is not None}

    def _usage(self, tree: list[tuple[int, int]], before: dict[Any, tuple[float, float]]) -> Usage | None:
        looked = [self._row(pid, depth, before) for pid, depth in tree[:LOOKED_AT]]
        rows = [row for row in looked if row is not None]
        return None if looked[0] is None else _summed(rows, len(tree) - len(looked) + len(rows))

    def _row(self, pid: int, depth: int, before: dict[Any, tuple[float, float]]) -> Usage | None:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                spent, now = sum(process.cpu_times()[:2]), time.monotonic()
                began = process.create_time()
                row = {
                    "pid": pid,
                    "name": process.name()[:NAME_CHARS],
                    "depth": min(depth, DEPTH),
                    "rss": process.memory_info().rss,
                    "threads": process.num_threads(),
                    "files": _files(process),
                    "began": began,
                }
        except (psutil.Error, OSError):
            return None  # it ended while being examined
        spent_before, then = before.get((pid, began), (spent, now - 1))
        self._cpu[pid, began] = (spent, now)
        return row | {"cpu": round(100 * max(0.0, spent - spent_before) / max(0.001, now - then), 1)}


def _tree(root: int, below: dict[int, list[int]]) -> list[tuple[int, int]]:
    """(pid, depth) of a process and its descendants, each below its parent."""
    found, waiting = [], [(root, 0)]
    while waiting:
        pid, depth = waiting.pop()
        found.append((pid, depth))
        waiting += [(child, depth + 1) for child in reversed(below.get(pid, []))]
    return found


def _children() -> dict[int, list[int]]:
    below = defaultdict(list)
    for process in psutil.process_iter(["ppid"]):
        below[process.info["ppid"]].append(process.pid)
    return below


def _files(process: psutil.Process) -> int | None:
    try:
        return process.num_fds()
    except (psutil.Error, OSError):
        return None


def _summed(rows: list[Usage], count: int) -> Usage:
    files = [row["files"] for row in rows if row["files"] is not None]
    return {
        "pid": rows[0]["pid"],
        "started": datetime.fromtimestamp(rows[0]["began"], UTC).isoformat(),
        "count": count,
        "rss": sum(row["rss"] for row in rows),
        "cpu": round(sum(row["cpu"] for row in rows), 1),
        "threads": sum(row["threads"] for row in rows),
        "files": sum(files) if files else None,
        "rows": [{name: value for name, value in row.items() if name != "began"} for row in rows[:ROWS]],
    }


@dataclass
class _Published:
    """What was last written for one session."""

    usage: Usage
    at: float = field(default_factory=time.monotonic)
    warned: Set[str] = frozenset()

    def is_news(self, usage: Usage) -> bool:
        age, scale = time.monotonic() - self.at, settings.TIME_SCALE
        if usage["pid"] != self.usage["pid"] or usage["count"] != self.usage["count"]:
            return True
        grown = abs(usage["rss"] - self.usage["rss"]) / max(1, self.usage["rss"])
        points = abs(usage["cpu"] - self.usage["cpu"])
        if grown > NEWS_SHARE or points > NEWS_POINTS:
            return True
        return age >= (QUIET_SECONDS if grown > 0.01 or points > 1 else STALE_SECONDS) * scale


class Processes:
    """`sessions` returns the sessions that are open now."""

    def __init__(self, db: Database, sessions: Callable[[], list[OpenSession]]) -> None:
        self._db, self._sessions = db, sessions
        self._published: dict[int, _Published] = {}
        self._sampler, self._disk = Sampler(), DiskMeter()
        self._thread = ThreadPoolExecutor(1, "host-processes")
        self._thread.submit(int)  # starts the thread now, so that the worker's resources do not change later

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(SAMPLE_SECONDS * settings.TIME_SCALE)
                await self._sample()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _sample(self) -> None:
        lives = {live.client.pid: live for live in self._sessions() if live.client.pid}
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._thread, self._sampler.take, list(lives)) if lives else {}
            await self._check_disk(list(lives.values()))
        except Exception:  # only numbers for a page: a bad process table must not end the sampling
            log.exception("host.sampling_failed")
            return
        published = {
            live.lease.session_id: self._publish(live, found[pid]) for pid, live in lives.items() if pid in found
        }
        self._published = published

    async def _check_disk(self, lives: list[OpenSession]) -> None:
        folders, most = {live.lease.session_id: _own_folders(live) for live in lives}, settings.STDIO_DISK_MIB * 1024**2
        if not most:
            return
        loop = asyncio.get_running_loop()
        over = await loop.run_in_executor(self._thread, self._disk.excess, folders, most)
        for live in lives:
            if taken := over.get(live.lease.session_id):
                words = disk_excess(taken.size, folders[live.lease.session_id][0])
                live.suspect(TransportError(Fault.PROCESS_LIMIT, words, may_have_run=True))

    def _publish(self, live: OpenSession, usage: Usage) -> _Published:
        if words := excess(usage["rss"], usage["count"]):
            live.suspect(TransportError(Fault.PROCESS_LIMIT, words, may_have_run=True))
        for row in usage["rows"]:
            row["name"] = live.redactor.text(row["name"])
        before = self._published.get(live.lease.session_id)
        warned = self._warn(live, usage, before.warned if before else frozenset())
        if before is not None and not before.is_news(usage):
            before.warned = warned
            return before
        self._db.post(partial(lifecycle.process, live.lease, usage))
        return _Published(usage, warned=warned)

    def _warn(self, live: OpenSession, usage: Usage, before: Set[str]) -> Set[str]:
        """Warns when a limit is newly exceeded, not each time the number changes."""
        now = warnings(usage["rss"], usage["count"])
        for limit in now.keys() - before:
            live.log.host(now[limit], "warning")
        return now.keys()


def _own_folders(live: OpenSession) -> tuple[str, ...]:
    spec = live.launch.spec
    return spec.confinement.own if isinstance(spec, StdioSpec) and spec.confinement else ()

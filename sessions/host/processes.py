"""What the children of stdio sessions use: sampled off the loop, written only when it tells something new.

One look at the process table serves all sessions of the worker. Names of processes are kept, never their arguments:
those may hold secrets.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psutil
import structlog
from django.conf import settings

from sessions.domain import lifecycle
from sessions.domain.process_page import excess, warnings
from sessions.host.db import Database
from sessions.host.live import Live
from sessions.protocol.errors import Fault, TransportError

SAMPLE_SECONDS, QUIET_SECONDS, STALE_SECONDS = 5.0, 15.0, 60.0
ROWS, DEPTH, NAME_CHARS = 20, 3, 60
#: of one tree; what a server beyond that starts is counted only
LOOKED_AT = 300
#: what is written at once: a change of memory by this share, or of the CPU by as many points
NEWS_SHARE, NEWS_POINTS = 0.1, 10.0
log = structlog.get_logger(__name__)
Usage = dict[str, Any]


class Sampler:
    """Takes the trees below some processes. In its own thread, the only one that uses it."""

    def __init__(self) -> None:
        self._cpu: dict[tuple[int, float], tuple[float, float]] = {}

    def take(self, roots: Iterable[int]) -> dict[int, Usage]:
        """By root, without those that are gone."""
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
            return None  # it ended while it was looked at
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
class _Told:
    """What was written of one session last."""

    usage: Usage
    at: float = field(default_factory=time.monotonic)
    warned: list[str] = field(default_factory=list)

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
    """`sessions` gives those that are open now."""

    def __init__(self, db: Database, sessions: Callable[[], list[Live]]) -> None:
        self._db, self._sessions = db, sessions
        self._told: dict[int, _Told] = {}
        self._sampler = Sampler()
        self._thread = ThreadPoolExecutor(1, "host-processes")
        self._thread.submit(int)  # starts the thread now: what the worker holds does not change later

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
        except Exception:  # numbers for a page: whatever the process table holds must not end the worker's sampling
            log.exception("host.sampling_failed")
            return
        told = {live.hold.session_id: self._tell(live, found[pid]) for pid, live in lives.items() if pid in found}
        self._told = told

    def _tell(self, live: Live, usage: Usage) -> _Told:
        if words := excess(usage["rss"], usage["count"]):
            live.suspect(TransportError(Fault.PROCESS_LIMIT, words, may_have_run=True))
        for row in usage["rows"]:
            row["name"] = live.redactor.text(row["name"])
        before = self._told.get(live.hold.session_id)
        warned = self._warn(live, usage, before.warned if before else [])
        if before is not None and not before.is_news(usage):
            before.warned = warned
            return before
        self._db.post(partial(lifecycle.process, live.hold, usage))
        return _Told(usage, warned=warned)

    def _warn(self, live: Live, usage: Usage, before: list[str]) -> list[str]:
        """Said once, not each time the number moves."""
        now = warnings(usage["rss"], usage["count"])
        if len(now) > len(before):
            live.log.host(now[-1], "warning")
        return now

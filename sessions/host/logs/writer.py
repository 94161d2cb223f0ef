"""Writes the log lines of all sessions of a host, in bounded batches, with the lowest priority.

Calls wait for the writer thread and for the database's one write lock. So log lines are written in one small
transaction at a time, when nothing else waits. A pause after each batch limits their share of the writer's time.

A server that logs more than its part of a batch keeps the rest in memory. Lines that do not fit there are dropped.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import structlog

from sessions.connections.lifecycle import Lease
from sessions.host.db import Database, DatabaseAway
from sessions.host.logs.line import LogBatch
from sessions.host.logs.store import append_all

#: lines per transaction, and how many of them may come from one server
BATCH_LINES = 200
SERVER_LINES = 100
#: between two batches: at least this long, and REST times as long as the last one took, up to a limit
FLUSH_SECONDS = 0.2
REST = 9.0
REST_LIMIT_SECONDS = 2.0
log = structlog.get_logger(__name__)


class SessionLog(Protocol):
    """The log of one session."""

    lease: Lease
    #: done when the lines under way are written or put back
    under_way: asyncio.Future[None] | None

    @property
    def waits(self) -> bool: ...
    def take(self, most: int | None = None) -> LogBatch: ...
    def put_back(self, taken: LogBatch) -> None: ...


class LogWriter:
    def __init__(self, db: Database) -> None:
        self._db = db
        #: logs with waiting lines, in the order of their turns
        self._waiting: dict[SessionLog, None] = {}
        self._task: asyncio.Task[None] | None = None
        #: loop time before which nothing is written
        self._rests_until = 0.0

    def wake(self, source: SessionLog) -> None:
        """Call from the loop. Never waits."""
        self._waiting.setdefault(source)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="write log lines")

    async def finish(self, source: SessionLog) -> None:
        """Write all waiting lines of this log now: its session is about to be released."""
        self._waiting.pop(source, None)
        while source.under_way is not None:
            await asyncio.wait({source.under_way})
        if source.waits:
            await self._write({source: source.take()}, spare=False)
        self._waiting.pop(source, None)

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        while self._waiting:
            await asyncio.sleep(max(FLUSH_SECONDS, self._rests_until - now()))
            began = now()
            await self._write(self._batch(), spare=True)
            self._rests_until = now() + min(REST_LIMIT_SECONDS, REST * (now() - began))
        self._task = None

    def _batch(self) -> dict[SessionLog, LogBatch]:
        """Logs take turns: one with more than its share comes last next time."""
        batch: dict[SessionLog, LogBatch] = {}
        room = BATCH_LINES
        for source in list(self._waiting):
            if room <= 0:
                break
            del self._waiting[source]
            batch[source] = taken = source.take(min(room, SERVER_LINES))
            room -= len(taken.lines)
        return batch

    async def _write(self, batch: Mapping[SessionLog, LogBatch], *, spare: bool) -> None:
        """Completes even if the caller is cancelled: the lines have no other owner any more."""
        writing = asyncio.ensure_future(self._written(batch, spare=spare))
        for source in batch:
            source.under_way = writing
        await asyncio.shield(writing)

    async def _written(self, batch: Mapping[SessionLog, LogBatch], *, spare: bool) -> None:
        batches = [(source.lease, taken.to_write) for source, taken in batch.items() if taken.to_write]
        try:
            await self._db.write(partial(append_all, batches), spare=spare)
        except DatabaseAway:
            for source, taken in batch.items():
                source.put_back(taken)
        except Exception:  # one bad line must not silence the logs of all other servers
            log.exception("host.log_lines_lost", lines=sum(len(lines) for _, lines in batches))
        finally:
            for source in batch:
                source.under_way = None
        for source in batch:
            if source.waits:
                self._waiting.setdefault(source)

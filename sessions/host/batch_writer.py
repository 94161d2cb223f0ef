"""Writes the log lines, recorded messages and counts of a host's sessions in bounded batches.

Calls wait for the writer thread and for the database's one write lock. So these rows are written in small transactions,
most of them when nothing else waits. A pause after each batch limits their share of the writer's time.

A session that records more than its part of a batch keeps the rest in memory. What does not fit there is dropped.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import structlog

from sessions.host.db import Database, DatabaseAway, RowsOrphaned, RowsRefused

log = structlog.get_logger(__name__)


class Batch(Protocol):
    """Rows of one source on their way to the database."""

    @property
    def count(self) -> int: ...


B = TypeVar("B", bound=Batch)


class Source(Protocol[B]):
    """What one session records."""

    #: done when the rows under way are written or put back
    under_way: asyncio.Future[Any] | None

    @property
    def waits(self) -> bool: ...
    def take(self, most: int | None = None) -> B: ...
    def put_back(self, taken: B) -> None: ...


class BatchWriter(ABC, Generic[B]):
    #: rows per transaction, and how many of them may come from one source
    rows: ClassVar[int] = 200
    share: ClassVar[int] = 100
    #: whether others that wait for the writer, such as calls, go first
    low_priority: ClassVar[bool] = True
    #: from the first waiting row to its batch
    flush_seconds: ClassVar[float] = 0.2
    #: between two batches: at least this long, and REST times as long as the last one took, up to a limit
    pause_seconds: ClassVar[float] = 0.2
    rest: ClassVar[float] = 9.0
    rest_limit_seconds: ClassVar[float] = 2.0

    def __init__(self, db: Database) -> None:
        self._db = db
        #: sources with waiting rows, in the order of their turns
        self._waiting: dict[Source[B], None] = {}
        self._task: asyncio.Task[None] | None = None
        #: loop time before which nothing is written
        self._rests_until = 0.0

    @abstractmethod
    def append(self, batches: Sequence[tuple[Any, B]]) -> None:
        """Write these rows in the current transaction. Runs again after a rollback."""

    def written(self, batches: Sequence[tuple[Any, B]]) -> None:
        """These rows are committed. Called on the loop."""

    def wake(self, source: Source[B]) -> None:
        """Call from the loop. Never waits."""
        self._waiting.setdefault(source)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=type(self).__name__)

    async def finish(self, source: Source[B]) -> None:
        """Write all waiting rows of this source now: its session is about to be released."""
        self._waiting.pop(source, None)
        while source.under_way is not None:
            await asyncio.wait({source.under_way})
        while source.waits and await self._write({source: source.take(self.rows)}, low_priority=False):
            pass
        self._waiting.pop(source, None)

    async def _run(self) -> None:
        now = asyncio.get_running_loop().time
        pause = self.flush_seconds
        while self._waiting:
            await asyncio.sleep(max(pause, self._rests_until - now()))
            began, pause = now(), 0.0
            await self._write(self._batch(), low_priority=self.low_priority)
            rest = min(self.rest_limit_seconds, self.rest * (now() - began))
            self._rests_until = now() + max(self.pause_seconds, rest)
        self._task = None

    def _batch(self) -> dict[Source[B], B]:
        """Sources take turns: one with more than its share comes last next time."""
        batch: dict[Source[B], B] = {}
        room = self.rows
        for source in list(self._waiting):
            if room <= 0:
                break
            del self._waiting[source]
            batch[source] = taken = source.take(min(room, self.share))
            room -= taken.count
        return batch

    async def _write(self, batch: Mapping[Source[B], B], *, low_priority: bool) -> bool:
        """False if the database did not take the rows: they wait again. Completes even if the caller is cancelled: the
        rows no longer have another owner."""
        writing = asyncio.ensure_future(self._written(batch, low_priority=low_priority))
        for source in batch:
            source.under_way = writing
        return await asyncio.shield(writing)

    async def _written(self, batch: Mapping[Source[B], B], *, low_priority: bool) -> bool:
        batches, away = list(batch.items()), False
        try:
            # A write that times out may still commit, and the rows that were put back would be written twice.
            await self._db.write(partial(self.append, batches), low_priority=low_priority, seconds=None)
            self.written(batches)
        except RowsOrphaned:
            away = not await self._written_apart(batch, low_priority=low_priority)
        except RowsRefused:
            away = not await self._without_bad_rows(batch, low_priority=low_priority)
        except DatabaseAway:
            away = True
            for source, taken in batches:
                source.put_back(taken)
        except Exception:  # one bad row must neither silence other sessions nor take their rows with it
            away = not await self._without_bad_rows(batch, low_priority=low_priority)
        finally:
            for source in batch:
                source.under_way = None
        for source in batch:
            if source.waits:
                self._waiting.setdefault(source)
        return not away

    async def _without_bad_rows(self, batch: Mapping[Source[B], B], *, low_priority: bool) -> bool:
        """Call while the exception is being handled: it is logged with the rows that no other attempt would save."""
        if len(batch) == 1:
            rows = sum(taken.count for taken in batch.values())
            log.exception("host.rows_lost", writer=type(self).__name__, rows=rows)
        return await self._written_apart(batch, low_priority=low_priority)

    async def _written_apart(self, batch: Mapping[Source[B], B], *, low_priority: bool) -> bool:
        """Write the rows of each source separately. Those of a deleted server are dropped, as are those that no
        database accepts; the rows of other sources are not lost with them."""
        if len(batch) == 1:
            return True
        return all([await self._written({source: taken}, low_priority=low_priority) for source, taken in batch.items()])

"""The loop's access to the database: a few threads with one persistent connection each, and one query for many waiters.

A thread hop per socket would cost milliseconds. Instead, requests that arrive while a query runs are answered together
by the next one.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, OperationalError, connections

from servers.loops import result_of

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: if the database cannot be reached, each attempt takes seconds: for this long, reads are then refused without another
AWAY_SECONDS: Final = 1.0


def with_clean_connections(job: Callable[[], T]) -> T:
    """Run `job`. After a database error, close this thread's connections, so that the next job opens new ones."""
    try:
        return job()
    except (DatabaseError, InterfaceError):
        for connection in connections.all(initialized_only=True):
            connection.close()
        raise


class Reader:
    """`run`: reads that wait only for the database; a failed one is repeated once if its connection may have been
    stale. While no connection can be made, the queued reads fail together, so that their callers find out. `work`: jobs
    that may wait longer (schema checks, Redis). `begin_run` and `begin_work` start the same, and return a future."""

    def __init__(self) -> None:
        self._away_until = 0.0
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="live-reader")
        self._work = ThreadPoolExecutor(4, thread_name_prefix="live-work")

    async def run(self, job: Callable[[], T]) -> T:
        return await result_of(self.begin_run(job))

    async def work(self, job: Callable[[], T]) -> T:
        return await result_of(self.begin_work(job))

    def begin_run(self, job: Callable[[], T]) -> "Future[T]":
        return self._reads.submit(self._read, job)

    def begin_work(self, job: Callable[[], T]) -> "Future[T]":
        return self._work.submit(with_clean_connections, job)

    def _read(self, job: Callable[[], T]) -> T:
        if _is_connected():
            with suppress(DatabaseError, InterfaceError):
                return with_clean_connections(job)
        return with_clean_connections(partial(self._attempt, job))

    def _attempt(self, job: Callable[[], T]) -> T:
        """Run `job` on a new connection."""
        if time.monotonic() < self._away_until:
            raise OperationalError("the database could not be reached a moment ago")
        try:
            return job()
        except (DatabaseError, InterfaceError):
            if not _is_connected():
                self._away_until = time.monotonic() + AWAY_SECONDS
            raise


def _is_connected() -> bool:
    return connections[DEFAULT_DB_ALIAS].connection is not None


class BatchedReads(Generic[K, V]):
    """`get(key)` for many waiters: requests that arrive during a read share the next one."""

    def __init__(self, reader: Reader, read: Callable[[list[K]], Mapping[K, V]], most: int = 200) -> None:
        self._reader, self._read, self._most = reader, read, most
        self._waiting: dict[K, list[asyncio.Future[V | None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V | None:
        """None if there is no such row (anymore)."""
        future: asyncio.Future[V | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            batch = dict(list(self._waiting.items())[: self._most])
            for key in batch:
                del self._waiting[key]
            try:
                found = await self._reader.run(lambda keys=list(batch): self._read(keys))  # type: ignore[misc]  # bound now
            except Exception as problem:  # passed on to every waiter
                _fail(chain.from_iterable(batch.values()), problem)
            else:
                for key, futures in batch.items():
                    for future in futures:
                        if not future.done():
                            future.set_result(found.get(key))


def _fail(futures: Iterable["asyncio.Future[Any]"], problem: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(problem)

"""The loop's access to the database: reads in a few threads of our own, writes in the process's one writer thread."""

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import structlog
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, connections

from servers.audit.record import Event
from servers.audit.writer import AuditUnavailable, ReferenceDeleted, writer
from servers.loops import result_of

T = TypeVar("T")
Events = Callable[[Any], list[Event]]
READERS = 3
READ_LIMIT = 2_000
READ_SECONDS = 20.0
WRITE_SECONDS = 10.0
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
#: attempts at rows whose content the database refuses: another process may just have written the same rows
REFUSED_TRIES = 3
_REFUSALS = (AuditUnavailable, DatabaseError, InterfaceError)
#: refusals of the rows' content. Not of a missing table or column, which a migration may be about to add
_REFUSED_ROWS = (DataError, IntegrityError)
#: SQLSTATE classes that mean the same but are not a DataError in Django, such as a value too large for an index (54000)
_REFUSED_CLASSES = ("22", "23", "54")
log = structlog.get_logger(__name__)


class DatabaseAway(Exception):
    """The database did not complete the read or write in time."""


class RowsOrphaned(DatabaseAway):
    """What the rows belong to, a server for example, has been deleted. Retrying does not help."""


class RowsRefused(DatabaseAway):
    """The database is available but does not accept these rows: a value that no column can hold, for example. Retrying
    does not help."""


class Readers:
    """A few threads. Each has its own connection and closes it itself."""

    def __init__(self, count: int = READERS) -> None:
        self._jobs: queue.Queue[tuple[Future[Any], Callable[[], Any]] | None] = queue.Queue(READ_LIMIT)
        self._threads = [
            threading.Thread(target=self._serve, name=f"host-reader-{n}", daemon=True) for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        try:
            self._jobs.put_nowait((future, job))
        except queue.Full as exc:
            raise DatabaseAway("too many reads are waiting") from exc
        return future

    def stop(self, timeout: float = 2.0) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(timeout)

    def _serve(self) -> None:
        while (work := self._jobs.get()) is not None:
            future, job = work
            if future.set_running_or_notify_cancel():
                _run(future, job)
        connections.close_all()


def _run(future: "Future[Any]", job: Callable[[], Any]) -> None:
    try:
        future.set_result(job())
    except (DatabaseError, InterfaceError) as exc:
        connections.close_all()  # the connection may be broken; the next job opens another
        future.set_exception(exc)
    except BaseException as exc:  # whatever it is, the waiting coroutine handles it
        future.set_exception(exc)


def _is_of_the_rows(problem: BaseException) -> bool:
    state = str(getattr(problem.__cause__, "sqlstate", None) or "")
    return isinstance(problem, _REFUSED_ROWS) or state[:2] in _REFUSED_CLASSES


class Database:
    def __init__(self) -> None:
        self._readers = Readers()

    async def read(self, job: Callable[[], T]) -> T:
        """Run `job` in a reader thread. Raises DatabaseAway."""
        try:
            async with asyncio.timeout(READ_SECONDS):  # not wait_for: it can lose a cancellation at the end
                return await result_of(self._readers.submit(job))
        except (*_REFUSALS, TimeoutError) as exc:
            raise DatabaseAway(str(exc)) from exc

    async def write(
        self,
        fn: Callable[[], T],
        events: Events | None = None,
        *,
        urgent: bool = False,
        low_priority: bool = False,
        durable: bool = True,
        seconds: float | None = WRITE_SECONDS,
    ) -> T:
        """Commit once, with no time limit if `seconds` is None. Raises RowsOrphaned, RowsRefused, or DatabaseAway; after
        the latter, the write may still have been committed."""
        try:
            future = writer().submit(fn, events, urgent=urgent, low_priority=low_priority, durable=durable)
            async with asyncio.timeout(seconds):
                return await result_of(future)
        except ReferenceDeleted as exc:
            raise RowsOrphaned(str(exc)) from exc
        except (*_REFUSALS, TimeoutError) as exc:
            if _is_of_the_rows(exc):
                raise RowsRefused(f"{type(exc).__name__}: {exc}") from exc
            raise DatabaseAway(str(exc)) from exc

    async def persist(
        self, fn: Callable[[], T], events: Events | None = None, on_away: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Commit, waiting for the database as long as it takes. `fn` must be safe to repeat. `on_away` is awaited when
        the first try fails. Raises RowsOrphaned, RowsRefused.
        """
        attempt = 0
        while True:
            try:
                return await result_of(writer().submit(fn, events))
            except ReferenceDeleted as exc:
                raise RowsOrphaned(str(exc)) from exc
            except _REFUSALS as exc:
                refused = _is_of_the_rows(exc)
                if refused and attempt + 1 >= REFUSED_TRIES:
                    raise RowsRefused(f"{type(exc).__name__}: {exc}") from exc
                if attempt == 0:
                    event = "host.rows_refused" if refused else "host.database_away"
                    log.warning(event, problem=str(exc)[:200])
                    await on_away() if on_away else None
                await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1

    def post(self, fn: Callable[[], object]) -> None:
        """Commit when there is time. Silently dropped when the writer is busy (progress, latency)."""
        try:
            writer().submit(fn)
        except AuditUnavailable:
            return

    def stop(self) -> None:
        self._readers.stop()

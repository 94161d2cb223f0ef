"""One batch of works in one transaction: the functions run first, then all their events are appended, so that the head
of the chain is locked last. Only for the writer's thread.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog
from django.db import DatabaseError, IntegrityError, InterfaceError, connection, transaction

from servers.audit.record import Event, record_many
from servers.audit.sqlite import DurableLog, LogCopier, WriteTurn

log = structlog.get_logger("mcpadmin.audit")
T = TypeVar("T")
#: without a pause, a process that commits to SQLite back to back starves every other writer for seconds
FAIRNESS_SECONDS = 0.001


class AuditUnavailable(Exception):
    """Not durable in time. `unchanged`: nothing was written, and nothing will be; otherwise that is unknown."""

    def __init__(self, words: str, *, unchanged: bool = True) -> None:
        super().__init__(words)
        self.unchanged = unchanged


class ReferenceDeleted(AuditUnavailable):
    """Something that the rows refer to has been deleted. Retrying does not help."""


class Abandoned(Exception):
    """A caller gave up while its batch was under way: the batch is rolled back and run without it."""


class Down(Exception):
    """The database itself refuses: trying the works of the batch one by one would not help."""


class Lost(Down):
    """The connection broke during the commit: the database may have committed, and its reply was lost."""


@dataclass(eq=False)
class Work(Generic[T]):
    """Not `durable`: it does no harm if a power failure undoes it, so its caller does not wait for the disk."""

    fn: Callable[[], T]
    events: Callable[[T], list[Event]] | None
    durable: bool = True
    future: "Future[T]" = field(default_factory=Future)
    committing: bool = False
    since: float = field(default_factory=time.monotonic)

    def begin_commit(self) -> bool:
        """From here on the future cannot be cancelled. Returns False if it already was."""
        self.committing = self.committing or self.future.set_running_or_notify_cancel()
        return self.committing


_DELETED = "Something that this change refers to has been deleted, so nothing was changed. Reload the page."
_FOREIGN_KEY_VIOLATION = "23503"
#: of the writer thread's connection, on SQLite
_log: DurableLog | None = None
_turn: WriteTurn | None = None
_copier: LogCopier | None = None


def commit(batch: list[Work[Any]]) -> list[Any]:
    """Run and commit; `make_durable` must follow. Raises Abandoned, Down, ReferenceDeleted, or what a function raised; in
    each case except Lost nothing was written."""
    with _down():
        _prepare_connection()
    turn = _turn if connection.vendor == "sqlite" else None
    if turn is not None:
        turn.take()
    try:
        return _commit(batch)
    finally:
        if turn is not None:
            turn.leave()


def _commit(batch: list[Work[Any]]) -> list[Any]:
    block, committed = transaction.atomic(durable=True), []
    with _down():
        block.__enter__()
    used = connection.connection
    try:
        transaction.on_commit(
            lambda: committed.append(True)
        )  # runs before all other hooks: distinguishes a failed commit from a failed hook
        results = _run(batch)
    except BaseException as exc:  # whatever ends the batch, it is rolled back before it is raised again
        block.__exit__(type(exc), exc, exc.__traceback__)
        raise
    try:
        with _down():
            block.__exit__(None, None, None)
    except Exception as exc:  # after the commit, a hook's error must not change what the callers get
        if not committed and isinstance(exc.__cause__, IntegrityError):  # foreign keys, where `_run` did not check them
            raise ReferenceDeleted(_DELETED) from exc.__cause__
        if not committed and isinstance(exc, Down) and broken(used):
            raise Lost from exc.__cause__
        if not committed:
            raise
        log.exception("a hook after the commit failed")
    return results


def make_durable(batch: list[Work[Any]]) -> None:
    """After `commit`, before a caller learns of it. Raises OSError. Other processes can write meanwhile."""
    if _log is not None and connection.vendor == "sqlite":
        if _promised(batch):
            _log.sync()
        if _copier is not None:
            _copier.written()


def sync_log() -> None:
    """Runs in the caller's own thread: writes to disk what was committed and is not durable yet, before a call has to
    wait for it. Raises OSError."""
    if _log is not None:
        _log.sync()


def _promised(batch: list[Work[Any]]) -> bool:
    return any(work.durable for work in batch)


def pause() -> None:
    """Called between two batches: lets other processes write, if nothing else ensures that."""
    if _log is None and connection.vendor == "sqlite":
        time.sleep(FAIRNESS_SECONDS)


def _run(batch: list[Work[Any]]) -> list[Any]:
    _prepare_transaction(batch)
    results = [work.fn() for work in batch]
    events = [
        event for work, result in zip(batch, results, strict=True) if work.events for event in work.events(result)
    ]
    try:
        with _down():
            record_many(events)
    except Down as exc:
        if _refers_to_nothing(exc.__cause__):
            raise ReferenceDeleted(_DELETED) from exc.__cause__
        raise
    # checked before any is begun: its caller could no longer give up, however long the second attempt takes
    if any(work.future.cancelled() for work in batch) or not all(work.begin_commit() for work in batch):
        raise Abandoned
    return results


def _refers_to_nothing(problem: BaseException | None) -> bool:
    """PostgreSQL checks the foreign keys before the chain's head is locked. Events have none."""
    return isinstance(problem, IntegrityError) and getattr(problem.__cause__, "sqlstate", "") == _FOREIGN_KEY_VIOLATION


class _down:
    """Turns a refusal of the database into Down, including a lost connection at commit, which must not be retried."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, exc: BaseException | None, trace: Any) -> None:
        if isinstance(exc, DatabaseError | InterfaceError):
            raise Down from exc


def _prepare_connection() -> None:
    global _log, _turn, _copier
    if connection.connection is not None and not connection.autocommit:
        connection.close()  # the end of an earlier transaction failed half-way: this one would never be committed
    if connection.connection is None:
        connection.ensure_connection()
        if connection.vendor == "sqlite":
            database = str(connection.settings_dict["NAME"])
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout=2000")
                _log = DurableLog.of(database, cursor)
            _turn = _turn or WriteTurn(database)
            _copier = _copier or LogCopier(database)


def _prepare_transaction(batch: list[Work[Any]]) -> None:
    """Set per transaction and local to it: with a pool, the connection is not only ours."""
    if connection.vendor == "postgresql":
        settings = "SET LOCAL lock_timeout='2s'; SET LOCAL idle_in_transaction_session_timeout='5s'"
        if not _promised(batch):
            settings += "; SET LOCAL synchronous_commit=off"
        with connection.cursor() as cursor:
            cursor.execute(settings)


def broken(used: Any) -> bool:
    """Whether the connection that was used is gone: the server was restarted, or closed it while it was idle."""
    if used is None or (connection.connection is used and connection.is_usable()):
        return False
    connection.close()
    return True


def fail(batch: list[Work[Any]], cause: BaseException | None, *, unchanged: bool = True) -> None:
    log.error("the audit log cannot be written", works=len(batch), problem=str(cause)[:300])
    end = (
        ", so nothing was changed. Try again in a moment."
        if unchanged
        else ". Check whether the change was made before trying again."
    )
    for work in batch:
        problem = AuditUnavailable(f"The audit log is not available{end}", unchanged=unchanged)
        problem.__cause__ = cause
        settle(work, problem)


def settle(work: Work[Any], exc: BaseException) -> None:
    if work.begin_commit():
        work.future.set_exception(exc)

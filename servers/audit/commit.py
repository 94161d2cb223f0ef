"""One batch of works in one transaction: the functions run first, then all their events are appended, so that the head of
the chain is locked last. For the writer's thread alone.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog
from django.db import DatabaseError, InterfaceError, connection, transaction

from servers.audit.record import Event, record_many

log = structlog.get_logger("mcpadmin.audit")
T = TypeVar("T")


class AuditUnavailable(Exception):
    """Not durable in time."""


class Abandoned(Exception):
    """A caller gave up while its batch was under way: the batch is rolled back and run without it."""


class Down(Exception):
    """The database itself refuses: no use in trying the works of the batch one by one."""


@dataclass(eq=False)
class Work(Generic[T]):
    fn: Callable[[], T]
    events: Callable[[T], list[Event]] | None
    future: "Future[T]" = field(default_factory=Future)
    committing: bool = False
    since: float = field(default_factory=time.monotonic)

    def begin_commit(self) -> bool:
        """From here on the future cannot be cancelled. False when it was."""
        self.committing = self.committing or self.future.set_running_or_notify_cancel()
        return self.committing


def commit(batch: list[Work[Any]]) -> list[Any]:
    """Run and commit. Raises Abandoned, Down, or what a function raised; in each case nothing was written."""
    block, committed = transaction.atomic(durable=True), []
    with _down():
        _prepare_connection()
        block.__enter__()
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
    except Exception:  # after the commit, a hook's error must not change what the callers get
        if not committed:
            raise
        log.exception("a hook after the commit failed")
    return results


def _run(batch: list[Work[Any]]) -> list[Any]:
    _prepare_transaction()
    results = [work.fn() for work in batch]
    events = [
        event for work, result in zip(batch, results, strict=True) if work.events for event in work.events(result)
    ]
    with _down():
        record_many(events)
    # before any is begun: its caller could not give it up any more, however long the second turn then takes
    if any(work.future.cancelled() for work in batch) or not all(work.begin_commit() for work in batch):
        raise Abandoned
    return results


class _down:
    """Turns a refusal of the database into Down. A lost connection at commit is one: it must not be tried again."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, exc: BaseException | None, trace: Any) -> None:
        if isinstance(exc, DatabaseError | InterfaceError):
            raise Down from exc


def _prepare_connection() -> None:
    if connection.connection is None:
        connection.ensure_connection()
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA busy_timeout=2000")


def _prepare_transaction() -> None:
    """Per transaction and local to it: with a pool the connection is not ours alone."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout='2s'; SET LOCAL idle_in_transaction_session_timeout='5s'")


def broken(used: Any) -> bool:
    """Whether the connection that was used is gone: the server was restarted, or closed it while it was idle."""
    if used is None or (connection.connection is used and connection.is_usable()):
        return False
    connection.close()
    return True


def fail(batch: list[Work[Any]], cause: BaseException | None) -> None:
    log.error("the audit log cannot be written", works=len(batch), problem=str(cause)[:300])
    for work in batch:
        problem = AuditUnavailable("The audit log is not available, so nothing was changed. Try again in a moment.")
        problem.__cause__ = cause
        settle(work, problem)


def settle(work: Work[Any], exc: BaseException) -> None:
    if work.begin_commit():
        work.future.set_exception(exc)

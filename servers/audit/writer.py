"""The one writer thread of a process: group commit for everything that is on the path of a call.

    AuditUnavailable         the database did not accept it in time: the act must not happen. Not `unchanged`: it may
    have
                             been committed nevertheless
    ├── WriterBusy           the queue is full, or there is no thread to write; said at once
    └── ReferenceDeleted     a row that it refers to has been deleted

A *work* is a function that writes rows, and a function that names the events of what it wrote. All works that wait are
committed in ONE transaction: the functions run first, then all their events are appended, so that the head of the chain
is locked last. A function may run more than once (each time after a rollback), so it must not do anything but write.

A future stays cancellable until the moment of the commit: cancelling it is how a caller who stops waiting makes sure that
nothing was, and will be, written for it.
"""

import asyncio
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

import structlog
from django.db import connection, transaction

from servers import limits
from servers.audit.acts import Trail, audited
from servers.audit.commit import (
    Abandoned,
    AuditUnavailable,
    Down,
    Lost,
    ReferenceDeleted,
    Work,
    broken,
    commit,
    fail,
    make_durable,
    pause,
    settle,
)
from servers.audit.record import Event
from servers.loops import result_of
from servers.threads import started

__all__ = [
    "AuditUnavailable",
    "ReferenceDeleted",
    "Trail",
    "Writer",
    "WriterBusy",
    "after_batches",
    "audited",
    "reset",
    "writer",
]

log = structlog.get_logger("mcpadmin.audit")
T = TypeVar("T")
QUEUE_LIMIT = limits.number("audit_queue")
BATCH_LIMIT = 256
#: a commit that has begun cannot be taken back: how long a caller whose time is over still waits for it
COMMIT_GRACE_SECONDS = 3.0
#: writes that no caller waits for (log lines) run when nothing else is queued, or after this time
SPARE_SECONDS = 0.5


class WriterBusy(AuditUnavailable):
    """More works wait than the queue may hold, or nothing can write them."""


class Writer:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._urgent: deque[Work[Any]] = deque()
        self._queue: deque[Work[Any]] = deque()
        self._low_priority: deque[Work[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._wake_at: float | None = None

    # --- for callers ----------------------------------------------------------------------------------------------
    def submit(
        self,
        fn: Callable[[], T],
        events: Callable[[T], list[Event]] | None = None,
        *,
        urgent: bool = False,
        low_priority: bool = False,
        durable: bool = True,
    ) -> "Future[T]":
        """The future of `fn`'s result, done when result and events are durable. Never blocks; raises WriterBusy. Not
        `durable`: done when they are committed, and a power failure may take them back; what has events always is.

        The future fails with what `fn` raised, or with AuditUnavailable when the database refused.
        """
        work = Work(fn, events, durable or events is not None)
        with self._condition:
            if self._stopping:
                raise WriterBusy("This process is stopping.")
            if len(self._queue) + len(self._urgent) + len(self._low_priority) >= QUEUE_LIMIT:
                raise WriterBusy(
                    f"Too many changes are waiting for the audit log. {limits.stated('audit_queue')} Try again in a moment."
                )
            self._ensure_thread()
            (self._urgent if urgent else self._low_priority if low_priority else self._queue).append(work)
            self._condition.notify()
        return work.future

    def submit_and_wait(
        self, fn: Callable[[], T], events: Callable[[T], list[Event]] | None = None, timeout: float = 2.0
    ) -> T:
        """For callers that may block. Raises AuditUnavailable when it is not durable in `timeout` seconds.

        Not inside of `atomic()`: the writer would wait for the very lock that this transaction holds.
        """
        if connection.in_atomic_block:
            raise transaction.TransactionManagementError("the writer commits on its own: call it outside of atomic()")
        future = self.submit(fn, events)
        try:
            return future.result(timeout)
        except FutureTimeout:
            return self._late(future)

    async def durable(self, future: "Future[T]", seconds: float = 2.0) -> T:
        """The result of what was submitted, for a loop: `submit_and_wait` in two steps."""
        try:
            async with asyncio.timeout(seconds):
                return await result_of(future, cancels=False)
        except TimeoutError as exc:
            if future.cancel():
                raise _too_late() from exc
        try:
            async with asyncio.timeout(COMMIT_GRACE_SECONDS):
                return await result_of(future, cancels=False)
        except TimeoutError as exc:
            raise _too_late(unchanged=False) from exc

    def stop(self, timeout: float = 5.0) -> bool:
        """Write what waits and end the thread, which closes its connection. False when it did not end in time."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def _late(self, future: "Future[T]") -> T:
        if future.cancel():
            raise _too_late()
        try:
            return future.result(COMMIT_GRACE_SECONDS)
        except FutureTimeout as exc:
            raise _too_late(unchanged=False) from exc

    # --- the thread -----------------------------------------------------------------------------------------------
    def _ensure_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name="audit-writer", daemon=True)
            if not started(thread):
                raise WriterBusy(
                    "The system cannot start a thread for the audit log, so nothing was changed. Try again later."
                )
            self._thread = thread

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                self._write(batch)
                if not batch:
                    self._follow_up()
                if self._waits():
                    pause()
        finally:
            connection.close()

    def _next(self) -> list[Work[Any]] | None:
        """Waits. None when the writer stops and nothing is left; empty when only the follow-up is due."""
        with self._condition:
            seconds = None if self._wake_at is None else max(0.0, self._wake_at - time.monotonic())
            if self._condition.wait_for(lambda: self._waits() or self._stopping, seconds) and not self._waits():
                return None
            batch: list[Work[Any]] = []
            while (self._urgent or self._queue) and len(batch) < BATCH_LIMIT:
                batch.append((self._urgent or self._queue).popleft())
            if self._low_priority and (not batch or self._low_priority[0].since < time.monotonic() - SPARE_SECONDS):
                batch.append(self._low_priority.popleft())
            return batch

    def _waits(self) -> bool:
        return bool(self._queue or self._urgent or self._low_priority)

    def _write(self, batch: list[Work[Any]]) -> None:
        """Whatever happens, each caller gets an outcome, and the thread continues."""
        try:
            self._flush(batch)
        except Exception as exc:  # a fault of ours: what became of each work is not known
            log.exception("the audit log's writer failed")
            fail([work for work in batch if not work.future.done()], exc, unchanged=False)

    def _flush(self, batch: list[Work[Any]], *, again: bool = True) -> None:
        """Follow up every commit at once: its hooks queue hints."""
        batch = [work for work in batch if work.committing or not work.future.cancelled()]
        if not batch:
            return
        used = connection.connection
        try:
            results = commit(batch)
        except Abandoned:
            self._flush(batch, again=again)
        except Down as exc:
            connection.close()
            fail(batch, exc.__cause__, unchanged=not isinstance(exc, Lost))
        except Exception as exc:  # whatever one function of the batch raised is its own caller's affair
            self._isolate(batch, exc, again and broken(used))
        else:
            self._follow_up()  # while the disk writes, other processes do what the hints ask for
            try:
                make_durable(batch)
            except OSError as exc:
                fail(batch, exc, unchanged=False)
                return
            for work, result in zip(batch, results, strict=True):
                work.future.set_result(result)

    def _follow_up(self) -> None:
        again = _run_follow_up()
        self._wake_at = None if again is None else time.monotonic() + again

    def _isolate(self, batch: list[Work[Any]], exc: Exception, broken: bool) -> None:
        """One by one, so that only the failing work fails; a single one again when its connection had broken."""
        if len(batch) == 1 and not broken:
            settle(batch[0], exc)
            return
        for work in batch:
            self._flush([work], again=not broken)


def _too_late(*, unchanged: bool = True) -> AuditUnavailable:
    end = (
        ", so nothing was changed. Try again."
        if unchanged
        else ". Check whether the change was made before trying again."
    )
    words = f"The audit log could not be written in time (2 s, a fixed limit){end}"
    return AuditUnavailable(words, unchanged=unchanged)


# --- after each batch ---------------------------------------------------------------------------------------------------
FollowUp = Callable[[], float | None]
_follow_up: FollowUp | None = None


def after_batches(job: FollowUp) -> None:
    """Run `job` in the writer's thread after each commit. It returns the number of seconds after which it must run
    again, or None to run after the next commit. It must not block."""
    global _follow_up
    _follow_up = job


def _run_follow_up() -> float | None:
    try:
        return _follow_up() if _follow_up is not None else None
    except Exception:  # the thread serves every caller: a follow-up that fails may not end it
        log.exception("audit.follow_up_failed")
        return None


# --- one per process --------------------------------------------------------------------------------------------------
_writer: Writer | None = None
_guard = threading.Lock()


def writer() -> Writer:
    global _writer
    with _guard:
        if _writer is None:
            _writer = Writer()
        return _writer


def reset(timeout: float = 5.0) -> None:
    """End this process's writer and its connection; the next `writer()` is a new one. For tests and shutdown."""
    global _writer
    with _guard:
        old, _writer = _writer, None
    if old is not None:
        old.stop(timeout)


def _forget_after_fork() -> None:
    """A thread does not survive a fork, and its connection belongs to the parent."""
    global _writer, _guard
    _writer, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(reset, 2.0)

"""Writes that no call may wait for: works of the audit writer with the lowest priority.

On SQLite the writer takes its turn among the writers of all processes, so none of them sleeps for the database's lock.
What removes many rows does it in Batches, between which calls go first.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeVar

from django.db import OperationalError, transaction

from servers.audit.commit import sync_log
from servers.audit.record import Event
from servers.audit.writer import AuditUnavailable, writer

#: the writer may be busy with calls all the time
PATIENCE_SECONDS: Final = 60.0
#: how long one transaction of many is meant to hold the database, its commit included. A call may have to wait for it.
BATCH_SECONDS: Final = 0.010
MOST, FEWEST = 2_000, 4
#: between the parts of a transaction its time is looked at. Each part has the fixed cost of its statements.
PARTS: Final = 2
T = TypeVar("T")
K = TypeVar("K")


def in_turn(work: Callable[[], T], events: Callable[[T], list[Event]] | None = None, *, durable: bool = True) -> T:
    """In a transaction of its own, with its events; not inside of one. Raises OperationalError when the database refuses for
    too long. Not `durable`: a power failure may take it back."""
    try:
        return writer().submit(work, events, low_priority=True, durable=durable).result(PATIENCE_SECONDS)
    except (AuditUnavailable, FutureTimeout) as problem:
        raise OperationalError(str(problem) or "the writer is busy") from problem


class Batches:
    """Transactions that remove rows. Their number of rows follows the time that the last one took: `size` is for the next one.

    None is durable when it ends: after a power failure the same rows would be removed again. This thread has the disk write
    them, and not the writer's, for which a call may be waiting.
    """

    def __init__(self, size: int = 20) -> None:
        self.size = size
        #: seconds that the last one held the database
        self.held = 0.0

    def each(self, keys: Sequence[K], work: Callable[[Sequence[K]], object]) -> None:
        """`work` on all keys, in parts: a transaction ends with the part in which its time is over, and the next one takes
        no more than then fits."""
        while keys:
            keys = keys[self._write(keys[: self.size], work) :]

    def _write(self, keys: Sequence[K], work: Callable[[Sequence[K]], object]) -> int:
        def timed() -> int:
            began = time.perf_counter()
            done = self._parts(keys, work)
            fitted = done if done < len(keys) else self.size
            transaction.on_commit(lambda: self._held(fitted, time.perf_counter() - began))
            return done

        done = in_turn(timed, durable=False)
        try:
            sync_log()
        except OSError as problem:
            raise OperationalError(f"the log of the database cannot be written: {problem}") from problem
        return done

    def _parts(self, keys: Sequence[K], work: Callable[[Sequence[K]], object]) -> int:
        """How many were done."""
        ends = time.perf_counter() + BATCH_SECONDS
        part = max(FEWEST, len(keys) // PARTS)
        for done in range(0, len(keys), part):
            if done and time.perf_counter() > ends:
                return done
            work(keys[done : done + part])
        return len(keys)

    def _held(self, rows: int, seconds: float) -> None:
        self.held = seconds
        fitting = int(rows * BATCH_SECONDS / max(seconds, 0.0001))
        self.size = max(FEWEST, min(MOST, self.size + self.size // 4, fitting))

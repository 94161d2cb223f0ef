"""Writes that no call may wait for: works of the audit writer with the lowest priority.

On SQLite the writer takes its turn among the writers of all processes, so none of them sleeps for the database's lock.
What removes many rows does it in Batches, between which calls go first.
"""

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeVar

from django.db import OperationalError, transaction

from servers.audit.record import Event
from servers.audit.writer import AuditUnavailable, writer

#: the writer may be busy with calls all the time
PATIENCE_SECONDS: Final = 60.0
#: how long one transaction of many is meant to hold the database, its commit included. A call may have to wait for it.
BATCH_SECONDS: Final = 0.010
MOST, FEWEST = 2_000, 4
T = TypeVar("T")


def in_turn(work: Callable[[], T], events: Callable[[T], list[Event]] | None = None) -> T:
    """In a transaction of its own, with its events; not inside of one. Raises OperationalError when the database refuses for too long."""
    try:
        return writer().submit(work, events, spare=True).result(PATIENCE_SECONDS)
    except (AuditUnavailable, FutureTimeout) as problem:
        raise OperationalError(str(problem) or "the writer is busy") from problem


class Batches:
    """Transactions whose number of rows follows the time that the last one took: `size` is for the next one."""

    def __init__(self, size: int = 20) -> None:
        self.size = size
        #: seconds that the last one held the database
        self.held = 0.0

    def write(self, work: Callable[[], T]) -> T:
        """As `in_turn`."""

        def timed() -> T:
            began = time.perf_counter()
            transaction.on_commit(lambda: self._held(time.perf_counter() - began))
            return work()

        return in_turn(timed)

    def _held(self, seconds: float) -> None:
        self.held = seconds
        fitting = int(self.size * BATCH_SECONDS / max(seconds, 0.0001))
        self.size = max(FEWEST, min(MOST, self.size + self.size // 4, fitting))

"""Writes that no call may wait for: works of the audit writer with the lowest priority.

On SQLite the writer takes its turn among the writers of all processes, so none of them sleeps for the database's lock.
"""

from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from django.db import OperationalError

from servers.audit.record import Event
from servers.audit.writer import AuditUnavailable, writer

#: the writer may be busy with calls all the time
PATIENCE_SECONDS = 60.0
T = TypeVar("T")


def in_turn(work: Callable[[], T], events: Callable[[T], list[Event]] | None = None) -> T:
    """In a transaction of its own, with its events; not inside of one. Raises OperationalError when the database refuses for too long."""
    try:
        return writer().submit(work, events, spare=True).result(PATIENCE_SECONDS)
    except (AuditUnavailable, FutureTimeout) as problem:
        raise OperationalError(str(problem) or "the writer is busy") from problem

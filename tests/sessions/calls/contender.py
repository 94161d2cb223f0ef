"""Another process that wants a row which a transaction of the test has locked, on PostgreSQL."""

import threading
from collections.abc import Callable
from typing import TypeVar

from django.db import OperationalError, connection, transaction

T = TypeVar("T")
LONGEST_WAIT_MS = 200


def meanwhile(job: Callable[[], T]) -> T | None:
    """Run `job` in a transaction of another connection. None if it, or its commit, would have had to wait for a lock."""
    found: list[T | None] = []

    def attempt() -> None:
        try:
            with transaction.atomic():
                connection.cursor().execute(f"SET LOCAL lock_timeout = {LONGEST_WAIT_MS}")
                found.append(job())
        except OperationalError:
            found.append(None)
        finally:
            connection.close()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return found[-1]

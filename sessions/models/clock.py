"""The database's clock, which workers use for their heartbeats: the clocks of machines may differ by more than the age
at which a worker counts as dead."""

import time
from datetime import datetime, timedelta
from typing import Final

from django.db import connection
from django.utils import timezone

#: in between, its time is computed from the last answer
ASKED_AGAIN_SECONDS: Final = 10.0
#: the last answer, and its monotonic time
_answer: tuple[datetime, float] | None = None


def database_now() -> datetime:
    """For SQLite, the clock of this machine."""
    if connection.vendor == "sqlite":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        return moment


def about_database_now() -> datetime:
    """Queries only once in ASKED_AGAIN_SECONDS: for code that checks many workers or is in the path of a call."""
    global _answer
    if connection.vendor == "sqlite":
        return timezone.now()
    if _answer is None or time.monotonic() - _answer[1] > ASKED_AGAIN_SECONDS:
        _answer = database_now(), time.monotonic()
    moment, asked_at = _answer
    return moment + timedelta(seconds=time.monotonic() - asked_at)

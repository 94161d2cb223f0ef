"""Work that only one process at a time may do on PostgreSQL. SQLite's IMMEDIATE transactions exclude each other
anyway."""

from enum import IntEnum

from django.db.backends.base.base import BaseDatabaseWrapper


class AdvisoryLock(IntEnum):
    """Arbitrary constants, one per purpose."""

    FIRST_ADMINISTRATOR = 7_230_001
    STORAGE_HOURS = 7_230_002
    MIGRATIONS = 7_230_003
    CHECKPOINTS = 7_230_004
    ACCOUNT_NAMES = 7_230_005


def in_transaction(connection: BaseDatabaseWrapper, lock: AdvisoryLock) -> None:
    """Held until the end of the transaction."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [lock.value])

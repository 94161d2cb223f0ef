"""The database of a plant: SQLite, or PostgreSQL with FAULT_DATABASE=postgresql."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.tools import postgres

KIND = os.environ.get("FAULT_DATABASE", "sqlite")


class Busy(Exception):
    """Another connection held the lock for the whole wait."""


class Database(Protocol):
    #: environment variables for the product
    settings: dict[str, str]

    def rows(self, sql: str, *parameters: object) -> list[Any]: ...
    def locked(self, seconds: float) -> Any:
        """A context in which all can read and none can write. Raises Busy after waiting `seconds` for the lock."""

    def activity(self) -> list[str]:
        """What each connection does and waits for, where the database says so."""


class Sqlite:
    def __init__(self, directory: Path) -> None:
        self.settings: dict[str, str] = {}
        self._file = directory / "mcpadmin.sqlite3"

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        with sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=20) as database:
            database.row_factory = sqlite3.Row
            return database.execute(sql, parameters).fetchall()

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        database = sqlite3.connect(self._file, timeout=seconds, isolation_level=None)
        try:
            try:
                database.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as exc:
                raise Busy from exc
            yield
            database.execute("ROLLBACK")
        finally:
            database.close()

    def activity(self) -> list[str]:
        return []


class Postgresql:
    def __init__(self, url: str) -> None:
        self.settings = {"DATABASE_URL": url}
        self._url = url

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        return postgres.rows(self._url, sql, parameters)

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        tables = ", ".join(f'"{row["tablename"]}"' for row in self.rows(_TABLES))
        with psycopg.connect(self._url) as database:
            database.execute(f"SET lock_timeout = '{round(1000 * seconds)}ms'")
            try:
                database.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as exc:
                # the tables are locked one after the other, in another order than a transaction of the product
                raise Busy from exc
            yield
            database.rollback()

    def activity(self) -> list[str]:
        return [", ".join(f"{name} {value}" for name, value in row.items()) for row in self.rows(_ACTIVITY)]


_ACTIVITY = """
SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid)::text AS blocked_by,
       now() - xact_start AS transaction_for, now() - state_change AS state_for, left(query, 200) AS query
FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY xact_start
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"


@contextmanager
def database(directory: Path) -> Iterator[Database]:
    if KIND == "postgresql":
        with postgres.cluster() as url:
            yield Postgresql(url)
    elif KIND == "sqlite":
        yield Sqlite(directory)
    else:
        raise ValueError(f"FAULT_DATABASE is {KIND!r}, which is neither sqlite nor postgresql")

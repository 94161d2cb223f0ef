"""Tasks that run on at their server without a call that waits for them."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sessions.host.calls import orphaned_tasks
from sessions.host.calls.orphaned_tasks import OrphanedTasks
from sessions.host.db import DatabaseAway


class Rows:
    """A database that is away for the first read, and has no orphans."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self, job: Callable[[], Any]) -> list[Any]:
        self.reads += 1
        if self.reads == 1:
            raise DatabaseAway("The database is away.")
        return []


@pytest.fixture
def rows() -> Rows:
    return Rows()


def followed(rows: Rows, is_open: Callable[[], bool]) -> OrphanedTasks:
    lease: Any = SimpleNamespace(session_id=1)
    unused: Any = None
    database: Any = rows
    return OrphanedTasks(database, lease, unused, unused, is_open)


async def test_tasks_are_looked_for_again_when_the_database_was_away(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphaned_tasks, "RETRY_SECONDS", 0.0)
    async with asyncio.timeout(10):
        await followed(rows, lambda: True).look()
    assert rows.reads == 2


async def test_the_end_of_the_session_ends_the_wait_for_a_database_that_is_away(rows: Rows) -> None:
    tasks = followed(rows, lambda: rows.reads == 0)
    looking = tasks.look()
    await asyncio.sleep(0)
    tasks.over()
    async with asyncio.timeout(10):
        await looking
    assert rows.reads == 1

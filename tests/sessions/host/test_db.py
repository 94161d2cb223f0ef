"""A database read that is cancelled just as its answer arrives is either cancelled or answered."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from sessions.host.db import Database


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> "Future[Any]":
    """The answer of the reader thread."""
    future: Future[Any] = Future()
    monkeypatch.setattr("sessions.host.db.Readers.submit", lambda readers, job: future)
    return future


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()
    yield database
    database.stop()


@pytest.mark.parametrize("turns", range(6))
async def test_a_read_that_is_cancelled_while_its_answer_comes_is_cancelled(
    database: Database, answer: "Future[Any]", turns: int
) -> None:
    """Otherwise the code that closes a session would wait forever for a task that keeps running."""
    reading = asyncio.create_task(database.read(lambda: None))
    await asyncio.sleep(0)
    answer.set_result(7)
    for _ in range(turns):
        await asyncio.sleep(0)
    if reading.cancel():
        with pytest.raises(asyncio.CancelledError):
            await reading
    else:
        assert await reading == 7

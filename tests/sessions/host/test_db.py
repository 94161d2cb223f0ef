"""A database read that is cancelled just as its answer arrives is either cancelled or answered."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, DataError, IntegrityError, OperationalError

from servers.audit import writer
from sessions.host import db
from sessions.host.db import REFUSED_TRIES, Database, DatabaseAway, RowsRefused


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


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(db, "RETRY_SECONDS", (0.0,))
    yield
    writer.reset()


def failing(error: type[DatabaseError], times: int) -> tuple[list[int], Callable[[], str]]:
    """Writes that fail so many times, and the list that grows with each try."""
    tries: list[int] = []

    def write() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise error("It was refused.")
        return "written"

    return tries, write


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [DataError, IntegrityError])
def test_rows_that_no_database_takes_are_given_up(database: Database, soon: None, error: type[DatabaseError]) -> None:
    tries, write = failing(error, 100)
    with pytest.raises(RowsRefused, match=f"{error.__name__}: It was refused"):
        asyncio.run(asyncio.wait_for(database.persist(write), 20))
    assert len(tries) == REFUSED_TRIES


@pytest.mark.django_db(transaction=True)
def test_a_value_that_no_index_holds_is_no_database_that_is_away(database: Database, soon: None) -> None:
    def write() -> None:
        raise OperationalError("index row size exceeds the maximum") from psycopg.errors.ProgramLimitExceeded()

    with pytest.raises(RowsRefused):
        asyncio.run(asyncio.wait_for(database.persist(write), 20))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("error", "told"), [(DataError, RowsRefused), (IntegrityError, RowsRefused), (OperationalError, DatabaseAway)]
)
def test_a_write_tells_rows_that_are_refused_from_a_database_that_is_away(
    database: Database, soon: None, error: type[DatabaseError], told: type[DatabaseAway]
) -> None:
    tries, write = failing(error, 100)
    with pytest.raises(DatabaseAway) as raised:
        asyncio.run(asyncio.wait_for(database.write(write), 20))
    assert (type(raised.value), len(tries)) == (told, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("error", "times"), [(IntegrityError, REFUSED_TRIES - 1), (OperationalError, 20)])
def test_what_may_succeed_later_is_tried_again(
    database: Database, soon: None, error: type[DatabaseError], times: int
) -> None:
    """Another process that wrote the same rows at the same moment; a database that was away."""
    _, write = failing(error, times)
    assert asyncio.run(asyncio.wait_for(database.persist(write), 20)) == "written"

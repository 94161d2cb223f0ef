"""Every line of a session's log is written or counted as dropped, even while the database is away, and logging
blocks nothing else."""

import asyncio
from typing import Any

import pytest

from sessions.enums import LogSource
from sessions.host.db import DatabaseAway, RowsOrphaned, RowsRefused
from sessions.host.logs import session_log
from sessions.host.logs.line import LINE_CHARS, LOGGER_CHARS
from sessions.host.logs.session_log import ServerLog, ServerLogLine
from sessions.host.logs.writer import LogWriter


class Shelf:
    """A database that fails the first `failures` writes and is slow while its gate is closed."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        #: leases of servers that were deleted
        self.deleted: set[Any] = set()
        self.refusal: Exception = RowsOrphaned("deleted")
        self.batches: list[list[tuple[Any, list[ServerLogLine]]]] = []
        self.low_priority: list[bool] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, job: Any, *, low_priority: bool, seconds: float | None) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise DatabaseAway("away")
        if any(source.lease in self.deleted for source, _ in job.args[0]):
            raise self.refusal
        self.low_priority.append(low_priority)
        self.batches.append([(source.lease, taken.to_write) for source, taken in job.args[0] if taken.to_write])

    def lines(self, lease: Any = None) -> list[ServerLogLine]:
        return [line for batch in self.batches for of, lines in batch if of == lease for line in lines]

    @property
    def dropped(self) -> int:
        return sum(int(line.text.partition(" ")[0]) for line in self.lines() if line.source is LogSource.HOST)

    @property
    def written(self) -> list[str]:
        return [line.text for line in self.lines() if line.source is LogSource.SERVER]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogWriter, "flush_seconds", 0.0)
    monkeypatch.setattr(LogWriter, "pause_seconds", 0.0)
    monkeypatch.setattr(LogWriter, "rest", 0.0)


def log_on(shelf: Shelf) -> ServerLog:
    return ServerLog(LogWriter(shelf), None)  # type: ignore[arg-type]  # only `write` is used


def say(log: ServerLog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        log.add(ServerLogLine(LogSource.SERVER, "info", f"line {number}"))


def numbered(*numbers: int) -> list[str]:
    return [f"line {number}" for number in range(*numbers)]


async def test_what_does_not_fit_is_shed_oldest_first_and_counted_exactly() -> None:
    shelf = Shelf()
    log = log_on(shelf)
    say(log, session_log.PENDING_LIMIT + 50)
    log.shed(7)
    await log.close()
    assert shelf.written == numbered(50, session_log.PENDING_LIMIT + 50)
    assert shelf.dropped == 57


async def test_lines_of_a_database_that_was_away_are_written_when_it_is_back() -> None:
    shelf = Shelf(failures=2)
    log = log_on(shelf)
    say(log, 10)
    log.shed(3)
    await log.close()
    say(log, 5, first=10)
    await log.close()
    assert shelf.lines() == []
    await log.close()
    assert shelf.written == numbered(15)
    assert shelf.dropped == 3


async def test_a_line_that_waits_holds_no_more_than_is_written_of_it() -> None:
    shelf = Shelf()
    shelf.gate.clear()
    log = log_on(shelf)
    log.add(ServerLogLine(LogSource.SERVER, "info", "x" * 1_000_000, "y" * 1_000_000))
    (line,) = log._pending
    assert (len(line.text), len(line.logger)) == (LINE_CHARS, LOGGER_CHARS)
    shelf.gate.set()
    await log.close()


async def test_a_database_that_stays_away_costs_lines_and_each_of_them_is_counted() -> None:
    shelf = Shelf(failures=1)
    log = log_on(shelf)
    say(log, session_log.PENDING_LIMIT)
    await log.close()
    say(log, 10, first=session_log.PENDING_LIMIT)
    await log.close()
    assert shelf.written == numbered(10, session_log.PENDING_LIMIT + 10)
    assert shelf.dropped == 10


async def test_each_confession_says_how_many_were_dropped_in_all() -> None:
    shelf = Shelf()
    log = log_on(shelf)
    for count in (1, 30, 400):
        log.shed(count)
        await log.close()
    ends = [line.text.partition("limit.")[2] for line in shelf.lines()]
    assert ends == [
        "",
        " 31 in total since this worker claimed the session.",
        " 431 in total since this worker claimed the session.",
    ]


async def test_closing_waits_for_the_lines_that_are_on_their_way() -> None:
    shelf = Shelf()
    log = log_on(shelf)
    shelf.gate.clear()
    say(log, 5)
    for _ in range(5):
        await asyncio.sleep(0)
    assert log.under_way is not None
    say(log, 2, first=5)
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0)
    assert not closing.done()
    shelf.gate.set()
    await closing
    assert shelf.written == numbered(7)


async def test_a_server_that_floods_gets_its_part_of_a_batch_and_the_others_theirs() -> None:
    shelf = Shelf()
    writer = LogWriter(shelf)  # type: ignore[arg-type]  # only `write` is used
    flooding, quiet = ServerLog(writer, "flooding"), ServerLog(writer, "quiet")  # type: ignore[arg-type]  # only their names are used
    say(flooding, session_log.PENDING_LIMIT)
    say(quiet, 3)
    async with asyncio.timeout(10):
        while flooding.waits or flooding.under_way:  # noqa: ASYNC110 - waits for turns of the event loop
            await asyncio.sleep(0)
    first = {lease: len(lines) for lease, lines in shelf.batches[0]}
    assert first == {"flooding": LogWriter.share, "quiet": 3}
    assert max(sum(len(lines) for _, lines in batch) for batch in shelf.batches) <= LogWriter.rows
    assert shelf.lines("flooding")[-1].text == f"line {session_log.PENDING_LIMIT - 1}"
    assert set(shelf.low_priority) == {True}


async def test_after_a_batch_the_writer_rests_in_proportion_to_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogWriter, "rest", 9.0)
    shelf = Shelf()
    writer = LogWriter(shelf)  # type: ignore[arg-type]  # only `write` is used
    log = ServerLog(writer, None)  # type: ignore[arg-type]  # nothing is stored
    now = asyncio.get_running_loop().time
    shelf.gate.clear()
    say(log, LogWriter.share)
    await asyncio.sleep(0.02)
    opened = now()
    shelf.gate.set()
    await log.close()
    while writer._task is not None:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    assert writer._rests_until >= opened + 9 * 0.015


@pytest.mark.parametrize(
    "refusal",
    [RowsOrphaned("deleted"), RowsRefused("out of range"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "a bad row")],
)
async def test_lines_that_no_try_would_write_are_dropped_and_those_of_the_others_written(refusal: Exception) -> None:
    shelf = Shelf()
    shelf.deleted, shelf.refusal = {"gone"}, refusal
    writer: Any = LogWriter(shelf)  # type: ignore[arg-type]  # only `write` is used
    gone, kept = ServerLog(writer, "gone"), ServerLog(writer, "kept")  # type: ignore[arg-type]  # only their names are used
    say(gone, 3)
    say(kept, 3)
    async with asyncio.timeout(10):
        while gone.waits or gone.under_way:  # noqa: ASYNC110 - waits for turns of the event loop
            await asyncio.sleep(0)
    assert [line.text for line in shelf.lines("kept")] == numbered(3)
    assert not shelf.lines("gone")


async def test_closing_writes_everything_in_transactions_of_bounded_size() -> None:
    shelf = Shelf()
    log = log_on(shelf)
    say(log, 2 * LogWriter.rows + 50)
    await log.close()
    assert [len(lines) for batch in shelf.batches for _, lines in batch] == [LogWriter.rows, LogWriter.rows, 50]

"""The log of a session: every line is written or counted, also while the database is away."""

import asyncio
from typing import Any

from sessions.enums import LogSource
from sessions.host import logs
from sessions.host.db import DatabaseAway
from sessions.host.logs import Line, ServerLog


class Shelf:
    """A database that is away for the first `failures` writes and slow when asked to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.lines: list[Line] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, job: Any) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise DatabaseAway("away")
        self.lines += job.args[1]

    @property
    def dropped(self) -> int:
        words = [line.text for line in self.lines if line.source is LogSource.HOST]
        return sum(int(text.partition(" ")[0]) for text in words)

    @property
    def written(self) -> int:
        return sum(line.source is LogSource.SERVER for line in self.lines)


def say(log: ServerLog, count: int) -> None:
    for number in range(count):
        log.add(Line(LogSource.SERVER, "info", f"line {number}"))


async def test_what_was_shed_and_what_could_not_be_written_is_counted_exactly() -> None:
    shelf = Shelf(failures=2)
    log = ServerLog(shelf, None)  # type: ignore[arg-type]  # only `write` is used
    say(log, logs.PENDING_LIMIT + 50)
    log.shed(7)
    await log._flush()
    say(log, 10)
    await log._flush()
    say(log, 3)
    await log.close()
    assert shelf.written == 3
    assert shelf.dropped == logs.PENDING_LIMIT + 50 + 7 + 10


async def test_closing_waits_for_the_lines_that_are_on_their_way() -> None:
    shelf = Shelf()
    log = ServerLog(shelf, None)  # type: ignore[arg-type]  # only `write` is used
    shelf.gate.clear()
    say(log, 5)
    writing = asyncio.create_task(log._flush())
    await asyncio.sleep(0)
    log._task = writing
    say(log, 2)
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0)
    shelf.gate.set()
    await closing
    assert [line.text for line in shelf.lines] == [f"line {n}" for n in (0, 1, 2, 3, 4, 0, 1)]

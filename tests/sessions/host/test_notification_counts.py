"""Notifications of watched resources are counted exactly, at once where they are few, and in small batches where they are
many: calls wait for the same writer."""

import asyncio
from typing import Any

import pytest

from sessions.host.db import WRITE_SECONDS, DatabaseAway
from sessions.host.subscriptions.notification_counts import CountWriter, NotificationCounts


class Tally:
    """A database that adds up what is written, and is away for the first `failures` writes."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.batches: list[int] = []
        self.sums: dict[int, int] = {}

    async def write(self, job: Any, *, low_priority: bool, seconds: float | None = WRITE_SECONDS) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise DatabaseAway("away")
        self._add(job)

    async def persist(self, job: Any) -> None:
        self._add(job)

    def _add(self, job: Any) -> None:
        (batches,) = job.args
        self.batches.append(sum(taken.count for _, taken in batches))
        for _, taken in batches:
            for pk, (number, _) in taken.numbers.items():
                self.sums[pk] = self.sums.get(pk, 0) + number


class SlowTally(Tally):
    """Commits after any time limit of the caller."""

    async def write(self, job: Any, *, low_priority: bool, seconds: float | None = WRITE_SECONDS) -> None:
        await super().write(job, low_priority=low_priority)
        if seconds is not None:
            raise DatabaseAway("too slow")


def counts_on(writer: CountWriter) -> NotificationCounts:
    return NotificationCounts(writer, None)  # type: ignore[arg-type]  # nothing is stored


def writer_on(tally: Tally) -> CountWriter:
    return CountWriter(tally)  # type: ignore[arg-type]  # only its writes are used


async def test_the_first_notification_is_written_at_once() -> None:
    tally = Tally()
    counts = counts_on(writer_on(tally))
    counts.note(1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert tally.sums == {1: 1}


async def test_a_server_that_reports_all_that_is_watched_gets_few_small_batches_and_another_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CountWriter, "pause_seconds", 0.02)
    tally = Tally()
    writer = writer_on(tally)
    flooding, quiet = counts_on(writer), counts_on(writer)
    until = asyncio.get_running_loop().time() + 0.4
    rounds = 0
    while asyncio.get_running_loop().time() < until:
        for pk in range(500):
            flooding.note(pk)
        rounds += 1
        if rounds == 2:
            quiet.note(1_000)
        await asyncio.sleep(0.002)
        if rounds == 20:
            assert tally.sums[1_000] == 1
    assert rounds >= 20
    assert len(tally.batches) <= 0.4 / 0.02 + 1
    assert max(tally.batches) <= CountWriter.rows
    await flooding.close()
    assert {pk: tally.sums[pk] for pk in range(500)} == dict.fromkeys(range(500), rounds)


async def test_what_was_counted_while_the_database_is_away_is_written_at_the_end() -> None:
    tally = Tally(failures=3)
    counts = counts_on(writer_on(tally))
    for pk in (1, 2, 1):
        counts.note(pk)
    for _ in range(5):
        await asyncio.sleep(0)
    counts.note(1)
    await counts.close()
    assert tally.sums == {1: 3, 2: 1}


async def test_a_slow_commit_counts_a_notification_once() -> None:
    tally = SlowTally()
    counts = counts_on(writer_on(tally))
    counts.note(1)
    await counts.close()
    assert tally.sums == {1: 1}

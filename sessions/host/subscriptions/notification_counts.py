"""Counts the notifications of each subscription in memory. The counts of all sessions of a host are written together, in
small batches: a server may report everything it watches, again and again, and calls wait for the same writer.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.utils import timezone

from sessions.connections.lifecycle import Lease
from sessions.host.batch_writer import BatchWriter
from sessions.host.db import DatabaseAway
from sessions.subscriptions import watches


@dataclass(frozen=True, slots=True)
class Counts:
    """By subscription, the number of notifications and the time of the newest."""

    numbers: dict[int, tuple[int, datetime]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.numbers)

    def add(self, pk: int, number: int, at: datetime) -> None:
        before, newest = self.numbers.get(pk, (0, at))
        self.numbers[pk] = (before + number, max(at, newest))

    def add_all(self, others: "Counts") -> None:
        for pk, (number, at) in others.numbers.items():
            self.add(pk, number, at)


class NotificationCounts:
    """The counts of one session."""

    def __init__(self, writer: "CountWriter", lease: Lease) -> None:
        self.lease = lease
        #: done when the counts under way are written or put back
        self.under_way: asyncio.Future[Any] | None = None
        self._writer = writer
        self._counts = Counts()

    def note(self, pk: int) -> None:
        """Call from the client's reader. Never waits."""
        self._counts.add(pk, 1, timezone.now())
        self._writer.wake(self)

    async def close(self) -> None:
        """Write the waiting counts."""
        await self._writer.finish(self)

    # --- for the writer ----------------------------------------------------------------------------------------------
    @property
    def waits(self) -> bool:
        return self._counts.count > 0

    def take(self, most: int | None = None) -> Counts:
        """The counts that have waited longest, of at most `most` subscriptions; all of them without `most`."""
        waiting = self._counts.numbers
        return Counts({pk: waiting.pop(pk) for pk in list(waiting)[:most]})

    def put_back(self, taken: Counts) -> None:
        self._counts.add_all(taken)


class CountWriter(BatchWriter[Counts]):
    rows = 100
    share = 50
    # The first notification is passed on at once: agents wait for it, and a worker that is killed should not lose it.
    low_priority = False
    flush_seconds = 0.0
    pause_seconds = 0.25
    # Under load, a batch waits long for its turn and is written within milliseconds, so its duration says nothing.
    rest = 0.0

    def append(self, batches: Sequence[tuple[NotificationCounts, Counts]]) -> None:
        together = Counts()
        for _, taken in batches:
            together.add_all(taken)
        watches.count_notifications([source.lease for source, _ in batches], together.numbers)

    async def finish(self, source: Any) -> None:
        """Waits for the database as long as it takes."""
        await super().finish(source)
        if source.waits:
            with suppress(DatabaseAway):  # it does not accept these rows, or their server has been deleted
                await self._db.persist(partial(self.append, [(source, source.take())]))

"""Counts the notifications of each subscription in memory and writes the counts every WRITE_EVERY_SECONDS."""

import asyncio
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final

from django.utils import timezone

from sessions.connections.lifecycle import Lease
from sessions.host.db import Database
from sessions.subscriptions import watches

WRITE_EVERY_SECONDS: Final = 0.5


class NotificationCounts:
    def __init__(self, db: Database, lease: Lease) -> None:
        self._db, self._lease = db, lease
        self._counts: dict[int, tuple[int, datetime]] = {}
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, pk: int) -> None:
        """Call from the client's reader. Never waits."""
        number, _ = self._counts.get(pk, (0, None))
        self._counts[pk] = (number + 1, timezone.now())
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="count notifications")

    async def close(self) -> None:
        """Write the waiting counts."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _write_all(self) -> None:
        while self._counts:
            counts, self._counts = self._counts, {}
            await self._db.persist(partial(watches.count_notifications, self._lease, counts))
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITE_EVERY_SECONDS):
                    await self._closing.wait()
        self._task = None

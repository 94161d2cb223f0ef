"""Reads of watched resources: one at a time a resource, a few at a time a session, none more often than its interval.

What is wanted while a read waits joins it; what is wanted while one is under way is one more read after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from sessions.enums import VersionCause
from sessions.protocol.backoff import Backoff

AT_ONCE: Final = 4
#: seconds before a read that failed is tried again: at least, and at most
RETRY_FIRST: Final = 5.0
RETRY_CEILING: Final = 600.0
#: of two reasons for one read the lower one is told
_RANK: Final = {cause: rank for rank, cause in enumerate((VersionCause.AFTER_GAP, VersionCause.UPDATED))}


@dataclass(frozen=True, slots=True)
class Wish:
    """Why a read is wanted, and how many notifications it will answer."""

    cause: VersionCause
    events: int = 0

    def joined(self, other: "Wish | None") -> "Wish":
        if other is None:
            return self
        first = min((self, other), key=lambda wish: _RANK.get(wish.cause, len(_RANK)))
        return Wish(first.cause, self.events + other.events)


log = structlog.get_logger(__name__)

#: reads a resource and keeps what it finds; False when that failed and is worth another try
Read = Callable[[str, Wish], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class _Place:
    uri: str
    interval: float
    wish: Wish | None = None
    began: float = float("-inf")  # of the last read
    due: float = float("-inf")
    news: asyncio.Event = field(default_factory=asyncio.Event)
    backoff: Backoff = field(default_factory=lambda: Backoff(RETRY_FIRST, RETRY_CEILING))
    task: "asyncio.Task[None] | None" = None


class Reads:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._places: dict[str, _Place] = {}

    def keep(self, intervals: Mapping[str, float]) -> None:
        """These are the resources from now on, with the seconds between two reads of each."""
        for uri in self._places.keys() - intervals.keys():
            self._drop(self._places.pop(uri))
        for uri, interval in intervals.items():
            self._places.setdefault(uri, _Place(uri, interval)).interval = interval

    def want(self, uri: str, wish: Wish) -> None:
        place = self._places.get(uri)
        if place is None:
            return
        place.wish = wish.joined(place.wish)
        place.due = min(place.due, place.began + place.interval)  # news do not wait for the retry of a failed read
        place.news.set()
        if place.task is None:
            place.task = asyncio.create_task(self._run(place), name="read resource")

    async def close(self) -> None:
        tasks = [place.task for place in self._places.values() if place.task is not None]
        self.keep({})
        if tasks:
            await asyncio.wait(tasks)

    @staticmethod
    def _drop(place: _Place) -> None:
        if place.task is not None:
            place.task.cancel()

    async def _run(self, place: _Place) -> None:
        try:
            while place.wish is not None:
                await self._until_due(place)
                async with self._slots:
                    await self._once(place)
        finally:
            place.task = None

    async def _until_due(self, place: _Place) -> None:
        clock = asyncio.get_running_loop().time
        while (left := place.due - clock()) > 0:
            place.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await place.news.wait()

    async def _once(self, place: _Place) -> None:
        clock = asyncio.get_running_loop().time
        wish, place.wish = place.wish, None
        if wish is None:
            return
        place.began = clock()
        if await self._read_well(place.uri, wish):
            place.backoff.reset()
            place.due = place.began + place.interval
            return
        # What came meanwhile shortens the pause to the interval; the failure itself waits longer.
        pause = place.interval if place.wish else max(place.interval, RETRY_FIRST, place.backoff.delay())
        place.wish = wish.joined(place.wish)
        place.due = clock() + pause

    async def _read_well(self, uri: str, wish: Wish) -> bool:
        try:
            return await self._read(uri, wish)
        except Exception:  # a fault of ours in one read must not end the others unseen
            log.exception("host.resource_read_failed")
            return False

"""Reads of watched resources: one at a time per resource, a few at a time per session, none more often than its
interval.

A request that arrives while a read waits joins it. One that arrives while a read is running causes one more read. A suspect
is a resource whose read may have ended an earlier session: it waits, and no other suspect is read at the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import structlog

from sessions.enums import VersionCause
from sessions.mcp.core.backoff import Backoff

AT_ONCE: Final = 4
#: seconds before a failed read is retried: minimum and maximum
RETRY_FIRST: Final = 5.0
RETRY_CEILING: Final = 600.0
#: if a read has two reasons, the one with the lower rank is recorded
_RANK: Final = {cause: rank for rank, cause in enumerate((VersionCause.AFTER_GAP, VersionCause.UPDATED))}


@dataclass(frozen=True, slots=True)
class ReadReason:
    """Why a read is requested, and how many notifications it covers."""

    cause: VersionCause
    events: int = 0

    def joined(self, other: "ReadReason | None") -> "ReadReason":
        if other is None:
            return self
        first = min((self, other), key=lambda reason: _RANK.get(reason.cause, len(_RANK)))
        return ReadReason(first.cause, self.events + other.events)


log = structlog.get_logger(__name__)

#: reads a resource and stores the result; False if that failed and should be retried
Read = Callable[[str, ReadReason], Awaitable[bool]]


@dataclass(slots=True, eq=False)
class _Place:
    uri: str
    interval: float
    reason: ReadReason | None = None
    began: float = float("-inf")  # start of the last read
    due: float = float("-inf")
    not_before: float = float("-inf")
    suspect: bool = False
    reading: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    backoff: Backoff = field(default_factory=lambda: Backoff(RETRY_FIRST, RETRY_CEILING))
    task: "asyncio.Task[None] | None" = None


class Reads:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._slots, self._alone = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
        self._places: dict[str, _Place] = {}

    def keep(self, intervals: Mapping[str, float], suspects: Mapping[str, float] = MappingProxyType({})) -> None:
        """Set the watched resources, each with the seconds between two reads. `suspects`: new resources that are
        suspects, each with the seconds until its first read."""
        now = asyncio.get_running_loop().time()
        for uri in self._places.keys() - intervals.keys():
            self._drop(self._places.pop(uri))
        for uri, interval in intervals.items():
            new = _Place(uri, interval, not_before=now + suspects.get(uri, 0.0), suspect=uri in suspects)
            place = self._places.setdefault(uri, new)
            shorter, place.interval = interval < place.interval, interval
            if shorter:  # a waiting read does not wait for the longer interval
                place.due = min(place.due, place.began + interval)
                place.news.set()

    def request(self, uri: str, reason: ReadReason) -> None:
        place = self._places.get(uri)
        if place is None:
            return
        place.reason = reason.joined(place.reason)
        place.due = min(place.due, place.began + place.interval)  # does not wait for a failed read's retry
        place.news.set()
        if place.task is None:
            place.task = asyncio.create_task(self._run(place), name="read resource")

    def under_way(self) -> list[str]:
        """The URIs that are being read; if one is a suspect, only that one."""
        reading = [place for place in self._places.values() if place.reading]
        return [place.uri for place in reading if place.suspect] or [place.uri for place in reading]

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
            while place.reason is not None:
                await self._until_due(place)
                if place.suspect:
                    async with self._alone, self._slots:
                        await self._once(place)
                else:
                    async with self._slots:
                        await self._once(place)
        finally:
            place.task = None

    async def _until_due(self, place: _Place) -> None:
        clock = asyncio.get_running_loop().time
        while (left := max(place.due, place.not_before) - clock()) > 0:
            place.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await place.news.wait()

    async def _once(self, place: _Place) -> None:
        clock = asyncio.get_running_loop().time
        reason, place.reason = place.reason, None
        if reason is None:
            return
        place.began = clock()
        if await self._read_well(place, reason):
            place.suspect = False
            place.backoff.reset()
            place.due = place.began + place.interval
            return
        # A notification that arrived meanwhile shortens the pause to the interval; a failure without one waits longer.
        pause = place.interval if place.reason else max(place.interval, RETRY_FIRST, place.backoff.delay())
        place.reason = reason.joined(place.reason)
        place.due = clock() + pause

    async def _read_well(self, place: _Place, reason: ReadReason) -> bool:
        place.reading = True
        try:
            return await self._read(place.uri, reason)
        except Exception:  # a bug of ours in one read must not end the others unnoticed
            log.exception("host.resource_read_failed")
            return False
        finally:
            place.reading = False

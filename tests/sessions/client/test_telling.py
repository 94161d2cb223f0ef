"""Events that were too many are owned up to, also by a server that says nothing more."""

import asyncio

import pytest

from sessions.client import telling
from sessions.client.telling import Telling
from sessions.protocol.events import Event, EventsDropped, LogMessage
from sessions.protocol.limits import Limits


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    monkeypatch.setattr(telling, "OWN_UP_SECONDS", 0.01)
    return []


def telling_into(heard: list[Event]) -> Telling:
    limits = Limits(events_per_second=0, events_burst=5)
    return Telling(None, limits, heard.append)  # type: ignore[arg-type]  # log messages need no session


async def until_told(heard: list[Event], times: int) -> list[int]:
    async with asyncio.timeout(10):
        while len(counts := [event.count for event in heard if isinstance(event, EventsDropped)]) < times:  # noqa: ASYNC110 - a list grows, no event stands for it
            await asyncio.sleep(0.005)
    return counts


async def test_the_last_drops_of_a_flood_are_told_although_no_event_follows(heard: list[Event]) -> None:
    told = telling_into(heard)
    for _ in range(30):
        told.tell(LogMessage("info", None, "again"))
    assert len(heard) == 5
    assert await until_told(heard, 1) == [25]


async def test_a_second_flood_is_told_as_well(heard: list[Event]) -> None:
    told = telling_into(heard)
    for number in (1, 2):
        for _ in range(10):
            told.tell(LogMessage("info", None, "again"))
        counts = await until_told(heard, number)
    assert counts == [5, 10]

"""Dropped events are reported, even if the server sends nothing more."""

import asyncio

import pytest

from sessions.mcp.client import event_sink
from sessions.mcp.client.event_sink import EventSink
from sessions.mcp.core.events import Event, EventsDropped, LateAnswer, ListChanged, ListKind, LogMessage, NotDelivered
from sessions.mcp.core.limits import Limits


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    monkeypatch.setattr(event_sink, "DROP_REPORT_SECONDS", 0.01)
    return []


def telling_into(heard: list[Event]) -> EventSink:
    limits = Limits(events_per_second=0, events_burst=5)
    return EventSink(None, limits, heard.append)  # type: ignore[arg-type]  # log messages need no session


async def until_told(heard: list[Event], times: int) -> list[int]:
    async with asyncio.timeout(10):
        while len(counts := [event.count for event in heard if isinstance(event, EventsDropped)]) < times:  # noqa: ASYNC110 - no event reports that a list has grown
            await asyncio.sleep(0.005)
    return counts


async def test_the_last_drops_of_a_flood_are_reported_although_no_event_follows(heard: list[Event]) -> None:
    told = telling_into(heard)
    for _ in range(30):
        told.emit(LogMessage("info", None, "again"))
    assert len(heard) == 5
    assert await until_told(heard, 1) == [25]


async def test_a_second_flood_is_reported_as_well(heard: list[Event]) -> None:
    told = telling_into(heard)
    for number in (1, 2):
        for _ in range(10):
            told.emit(LogMessage("info", None, "again"))
        counts = await until_told(heard, number)
    assert counts == [5, 10]


async def test_a_list_that_changed_in_a_flood_is_named_once_after_it(heard: list[Event]) -> None:
    told = telling_into(heard)
    for _ in range(30):
        told.emit(LogMessage("info", None, "again"))
        told.emit(ListChanged(ListKind.TOOLS))
    heard.clear()
    await until_told(heard, 1)
    assert heard == [EventsDropped(55), ListChanged(ListKind.TOOLS)]


async def test_what_belongs_to_a_message_of_ours_is_never_dropped(heard: list[Event]) -> None:
    told, ours = telling_into(heard), [NotDelivered("It was late.", "e-1"), LateAnswer(1, "tools/call", {}, None)]
    for _ in range(30):
        told.emit(LogMessage("info", None, "again"))
    heard.clear()
    for event in ours:
        told.emit(event)
    assert [event for event in heard if not isinstance(event, EventsDropped)] == ours

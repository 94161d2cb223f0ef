"""The frames of one call: its end is sent at once, superseded frames are skipped, and no end is missed."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from sessions.live import call_stream
from sessions.live.call_stream import CallStream
from sessions.live.early import MOST, EarlyHints
from sessions.live.frames import Frame, encode
from sessions.live.streams import TopicSubscription
from sessions.live.topics import Topic, TopicKind

UID = UUID(int=7)
TOPIC = Topic(TopicKind.CALL, UID)
PASSING = [{"passing": True}]


class _Viewer:
    user_id = 1
    reads_payloads = True


class Listener:
    viewer = _Viewer()
    suspended = False
    has_room = True

    def __init__(self) -> None:
        self.versions: list[int] = []

    def put(self, text: str) -> None:
        frame = json.loads(text)
        self.versions += [frame["seq"]] if "kind" in frame else []

    async def room(self) -> None:
        pass


class Row:
    """The row of a call, as the reader finds it. `reads` counts the reads."""

    def __init__(self) -> None:
        self.version, self.reads, self.found = 1, 0, asyncio.Queue[None]()
        self.stream = CallStream(TOPIC, self._read, self._no_progress)

    async def _read(self, *_: Any) -> list[Frame]:
        self.reads += 1
        text = encode(TOPIC.name, self.version, "call", [])
        self.found.put_nowait(None)
        return [Frame(text, None, "call", self.version, final=self.version >= 3)]

    async def _no_progress(self, *_: Any) -> None:
        return None

    def moves(self, version: int, rows: list[dict[str, Any]] | None = None) -> None:
        self.version = version
        self.stream.hint({"t": TOPIC.name, "seq": version, "kind": "call", "rows": rows})

    async def is_read(self) -> None:
        """Once more, and what was found was sent."""
        async with asyncio.timeout(20):
            await self.found.get()
        await asyncio.sleep(0)

    def follower(self) -> Listener:
        listener = Listener()
        self.stream.follow(TopicSubscription(listener, TOPIC, self.version, live=True))
        return listener


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_stream, "PASSING_SECONDS", 0.05)


async def test_a_fast_call_is_read_once_for_its_end() -> None:
    row = Row()
    listener = row.follower()
    row.moves(2, PASSING)
    row.moves(3)
    await asyncio.sleep(0.2)
    assert (listener.versions, row.reads) == ([3], 1)


async def test_a_slow_call_shows_that_it_was_sent() -> None:
    row = Row()
    listener = row.follower()
    row.moves(2, PASSING)
    await asyncio.sleep(0.2)
    assert listener.versions == [2]
    row.moves(3)
    await asyncio.sleep(0.05)
    assert listener.versions == [2, 3]


async def test_a_hint_of_what_is_known_is_not_looked_at() -> None:
    row = Row()
    listener = row.follower()
    row.moves(1)
    await asyncio.sleep(0.05)
    assert (listener.versions, row.reads) == ([], 0)


async def test_a_late_result_reaches_the_open_page_of_a_call_that_ended_before_it() -> None:
    row = Row()
    listener = row.follower()
    for version in (3, 4):  # the outcome is unknown, then its result comes
        row.moves(version)
        await row.is_read()
    assert listener.versions == [3, 4]


async def test_a_late_result_whose_hint_was_lost_is_found_by_the_slow_timer() -> None:
    row = Row()
    listener = row.follower()
    row.moves(3)
    await row.is_read()
    row.version = 4
    row.stream.recheck()
    await row.is_read()
    assert listener.versions == [3, 4]


async def test_what_one_listener_catches_up_with_the_others_get_too() -> None:
    """The stream records the version for all listeners, so it would ignore a later hint of that version."""
    row = Row()
    early, late = row.follower(), Listener()
    row.version = 3  # its hint was lost
    subscription = TopicSubscription(late, TOPIC, None)
    row.stream.subscriptions.add(subscription)
    await row.stream.catch_up(subscription)
    assert early.versions == late.versions == [3]


def test_of_a_call_that_no_one_knows_yet_the_newest_hint_is_kept() -> None:
    hints = EarlyHints()
    for seq in (2, 3, 1):
        hints.put({"t": "call.a", "seq": seq, "kind": "call", "rows": None})
    assert [hint["seq"] for hint in hints.take("call.a")] == [3]


def test_the_first_steps_of_such_a_call_come_before_its_newest_hint() -> None:
    hints = EarlyHints()
    for seq, kind in ((1, "call"), (None, "progress"), (None, "log"), (2, "call")):
        hints.put({"t": "call.a", "seq": seq, "kind": kind, "rows": None})
    assert [hint["kind"] for hint in hints.take("call.a")] == ["progress", "log", "call"]
    assert [hint["kind"] for hint in hints.take("call.a")] == ["call"]


def test_no_more_early_hints_are_kept_than_there_may_be() -> None:
    hints = EarlyHints()
    for number in range(MOST + 1):
        hints.put({"t": f"call.{number}", "seq": 1, "kind": "call", "rows": None})
    assert hints.take("call.0") == []
    assert len(hints.take("call.1")) == 1

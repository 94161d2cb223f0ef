"""A page that joins a topic of rows receives only what it does not show yet, judged by the version of a single row
or by time."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from django.db import OperationalError

from servers.audit import payloads
from servers.audit.record import Actor
from servers.enums import PayloadKind
from sessions.enums import CallState
from sessions.live import call_frames
from sessions.live.frames import Frame
from sessions.live.streams import OVERLAP_MS, ROWS_SEEN, Member, SnapshotStream, TopicSubscription
from sessions.live.topics import Topic, parse
from sessions.live.viewers import Viewer
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.asyncio
ONE, OTHER = "0f7c2a9e-8f5e-4b55-9d57-6f3a1a5d3c01", "0f7c2a9e-8f5e-4b55-9d57-6f3a1a5d3c02"


@dataclass
class Reader:
    user_id: int = 1
    reads_payloads: bool = True


@dataclass
class Page:
    """A listener that keeps what it was sent."""

    told: list[str] = field(default_factory=list)
    viewer: Viewer = field(default_factory=lambda: cast(Viewer, Reader()))
    actor: Actor = Actor(1, "ada", "192.0.2.7", "request-0001")
    suspended: bool = False
    has_room: bool = True
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    waits: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_go_on.set()

    def put(self, text: str) -> None:
        self.told.append(text)

    async def room(self) -> None:
        self.waits.set()
        await self.may_go_on.wait()


async def joined(topic: str, cursor: int | None, *frames: Frame, by_time: bool = False) -> tuple[list[str], Any]:
    """The frames sent to a page that joins with this cursor, and its cursor afterwards."""

    async def read(*_: Any) -> list[Frame]:
        return list(frames)

    parsed = parse(topic)
    assert parsed is not None
    stream, page = SnapshotStream(parsed, read), Page()
    stream.by_time = by_time
    await stream.catch_up(TopicSubscription(cast(Member, page), parsed, cursor))
    *sent, synced = page.told
    return sent, json.loads(synced)["seq"]


def row(key: str, version: int, moved: int | None = None) -> Frame:
    return Frame(f"{key[-2:]} v{version}", None, key, version, moved=moved)


async def test_the_version_of_one_row_says_nothing_about_another() -> None:
    before = row(ONE, 7), row(OTHER, 6)
    _, cursor = await joined("inbox", None, *before)
    sent, _ = await joined("inbox", cursor, row(ONE, 7), row(OTHER, 7))
    assert "02 v7" in sent, "it moved while the page was away"
    sent, _ = await joined("inbox", 7, row(ONE, 7), row(OTHER, 7))
    assert sent == ["01 v7", "02 v7"]


async def test_a_call_of_a_server_is_not_taken_for_the_servers_own_version() -> None:
    topic = f"server.{ONE}"
    sent, cursor = await joined(topic, None, row("session", 3), row("catalog", 0), row(f"call.{OTHER}", 9))
    assert (Counter(sent).total(), cursor) == (3, 3)
    sent, _ = await joined(topic, cursor, row("session", 3), row("catalog", 0), row(f"call.{OTHER}", 9))
    assert sent == ["og v0", "02 v9"]


@pytest.mark.parametrize("topic", [f"call.{ONE}", f"draft.{ONE}", f"subscription.{ONE}"])
async def test_what_a_page_shows_already_is_not_sent_again(topic: str) -> None:
    key = topic.split(".")[0]
    frame = row(ONE if key == "subscription" else key, 4)
    assert await joined(topic, 4, frame) == ([], 4)
    sent, _ = await joined(topic, 3, frame)
    assert len(sent) == 1


async def test_a_page_is_told_of_no_subscription_that_was_stalled_since_it_was_made() -> None:
    made = 1_800_000_000_000
    still, moved = row(ONE, 5, made - OVERLAP_MS - 1), row(OTHER, 5, made + 1)
    sent, now = await joined("subscriptions", made, still, moved, by_time=True)
    assert sent == ["02 v5"]
    assert abs(now - time.time() * 1000) < 60_000, "from where it goes on after a broken connection"


async def test_what_moved_right_before_a_page_was_made_is_reported_all_the_same() -> None:
    made = 1_800_000_000_000
    sent, _ = await joined("subscriptions", made, row(ONE, 5, made - 500), by_time=True)
    assert sent == ["01 v5"]


async def test_a_page_that_says_no_cursor_is_told_all() -> None:
    frames = row(ONE, 5, 1), row(OTHER, 6, 2)
    sent, _ = await joined("subscriptions", None, *frames, by_time=True)
    assert len(sent) == 2


async def test_a_page_that_stays_open_costs_no_memory_for_each_call_of_its_server() -> None:
    topic = cast(Topic, parse(f"server.{ONE}"))
    page = Page()
    subscription = TopicSubscription(cast(Member, page), topic, None, live=True)
    subscription.offer(row("session", 3))
    running = f"call.{OTHER}"
    for number in range(3 * ROWS_SEEN):
        subscription.offer(row(f"call.{number}", 2))
        subscription.offer(row(running, 10 + number))
    assert len(subscription.seen) == ROWS_SEEN + 1
    told = len(page.told)
    for again in (row("session", 3), row(running, 9 + 3 * ROWS_SEEN), row(f"call.{3 * ROWS_SEEN - 100}", 2)):
        subscription.offer(again)
    assert len(page.told) == told, "what came twice is not sent twice"


@pytest.mark.parametrize("topic", ["inbox", "subscriptions"])
async def test_a_page_that_stays_open_costs_no_memory_for_each_row_that_any_page_is_told_of(topic: str) -> None:
    subscription = TopicSubscription(cast(Member, Page()), cast(Topic, parse(topic)), None, live=True)
    for number in range(3 * ROWS_SEEN):
        subscription.offer(row(f"{number:08}-8f5e-4b55-9d57-6f3a1a5d3c01", 1))
    assert len(subscription.seen) == ROWS_SEEN


class Inbox:
    """A topic with a row that does not change, and a number without a version that does."""

    def __init__(self) -> None:
        self.open, self.away = 5, False
        self.topic = cast(Topic, parse("inbox"))
        self.stream = SnapshotStream(self.topic, self._read)
        self.stream.window = 0.0

    async def _read(self, *_: Any) -> list[Frame]:
        if self.away:
            raise OperationalError
        return [row(ONE, 1), Frame(f"{self.open} open", None, "count")]

    def joins(self, page: Page) -> TopicSubscription:
        found = TopicSubscription(cast(Member, page), self.topic, None)
        self.stream.subscriptions.add(found)
        return found

    async def changes(self, number: int) -> None:
        self.open = number
        self.stream.hint({"kind": "question", "rows": [{"question": ONE}]})
        await asyncio.wait_for(cast("asyncio.Task[None]", self.stream._pump), 20)


async def test_a_page_that_joins_slowly_brings_nothing_old_to_itself_or_others() -> None:
    inbox, fast, slow = Inbox(), Page(), Page()
    await inbox.stream.catch_up(inbox.joins(fast))
    slow.may_go_on.clear()
    joining = asyncio.create_task(inbox.stream.catch_up(inbox.joins(slow)))
    await slow.waits.wait()
    await inbox.changes(6)
    slow.may_go_on.set()
    await joining
    for page in (fast, slow):
        assert [text for text in page.told if "open" in text][-1] == "6 open"


async def test_a_page_whose_first_read_failed_is_not_live_so_the_slow_timer_reads_again() -> None:
    inbox, page = Inbox(), Page()
    inbox.away = True
    joined = inbox.joins(page)
    with pytest.raises(OperationalError):
        await inbox.stream.catch_up(joined)
    assert not joined.live
    inbox.away = False
    await inbox.stream.catch_up(joined)
    assert joined.live
    assert page.told[:2] == ["01 v1", "5 open"]


async def test_who_reads_the_call_of_another_person_on_an_open_page_is_named_with_address_and_request() -> None:
    readings: list[Actor] = []
    topic = parse(f"call.{ONE}")
    assert topic is not None
    page = Page()
    frame = Frame("text", None, "call", owner_id=2, record_reading=readings.append)
    TopicSubscription(cast(Member, page), topic, None, live=True).offer(frame)
    assert readings == [page.actor]


@pytest.fixture
def frame_for_readers(db: None) -> Frame:
    """Of a call with a result, made while only those who may read it listened."""
    call = make_call(make_session("files"), text="secret words")
    call.user = person("ada", "view_server")
    call.state, call.result = CallState.SUCCEEDED, payloads.store(PayloadKind.RESULT, '{"content": "secret words"}')
    call.save()
    return call_frames.call_frames([(call.uid, False)])[call.uid, False]


async def test_a_page_that_joins_while_a_result_is_read_for_others_gets_it_only_by_its_own_permission(
    frame_for_readers: Frame,
) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def read(*_: Any) -> list[Frame]:
        asked.set()
        await may_answer.wait()
        return [frame_for_readers]

    topic = parse(f"call.{ONE}")
    assert topic is not None
    stream, caller, other = SnapshotStream(topic, read), Page(), Page()
    caller.viewer = cast(Viewer, Reader(user_id=frame_for_readers.owner_id or 0))
    other.viewer = cast(Viewer, Reader(user_id=0, reads_payloads=False))
    stream.subscriptions.add(TopicSubscription(cast(Member, caller), topic, None, live=True))
    stream.hint({"kind": "call"})
    await asked.wait()
    stream.subscriptions.add(TopicSubscription(cast(Member, other), topic, None, live=True))
    may_answer.set()
    await asyncio.wait_for(cast("asyncio.Task[None]", stream._pump), 20)
    assert "secret words" in caller.told[0]
    assert other.told == []

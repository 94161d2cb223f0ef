"""Live frames about subscriptions carry enough for a message and a status pill, and never any content."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from sessions.live import subscription_frames
from sessions.live.frames import RECENT
from sessions.live.topic_reads import TopicReads
from sessions.live.topics import parse
from sessions.models import McpSession, Subscription
from tests.sessions.host.make import make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> McpSession:
    return make_session("orders")


@pytest.fixture
def subscription(session: McpSession) -> Subscription:
    return make_subscription(session, title="Notes")


def rows_of(frames: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(frame.text)["rows"][0] for frame in frames]


def test_a_frame_carries_a_message_and_a_pill_and_no_content(subscription: Subscription) -> None:
    add_version(subscription, "reserved")
    frames = subscription_frames.board_frames([subscription.uid])
    row = rows_of(frames)[0]
    assert (row["title"], row["newest"], row["notify"], row["fresh"]) == ("Notes", 1, True, True)
    assert "Listening" in row["pill"]
    assert "reserved" not in frames[0].text


def test_whoever_joins_hears_only_of_what_moved_just_now(session: McpSession) -> None:
    old = timezone.now() - RECENT * 2
    make_subscription(session, "quiet", state_since=old)
    make_subscription(session, "new state")
    changed = make_subscription(session, "changed", state_since=old)
    add_version(changed, "1")
    assert {row["title"] for row in rows_of(subscription_frames.board_frames(None))} == {"new state", "changed"}


def test_a_deletion_is_reported_and_outranks_every_version(subscription: Subscription) -> None:
    uid = subscription.uid
    subscription.delete()
    for frames in (subscription_frames.board_frames([uid]), subscription_frames.frames_of(uid)):
        assert rows_of(frames) == [{"subscription": str(uid), "deleted": True}]
        assert frames[0].version > 1 << 60


def test_the_frame_of_a_page_moves_its_mark_with_a_version(subscription: Subscription) -> None:
    first = rows_of(subscription_frames.frames_of(subscription.uid))[0]
    add_version(subscription, "1")
    second = rows_of(subscription_frames.frames_of(subscription.uid))[0]
    assert (first["newest"], second["newest"]) == (0, 1)
    assert first["mark"] != second["mark"]


async def test_many_that_moved_at_once_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def read(uids: list[UUID]) -> list[Any]:
        sizes.append(len(uids))
        return [SimpleNamespace(version=1) for _ in uids]

    monkeypatch.setattr(subscription_frames, "board_frames", read)
    topic: Any = parse("subscriptions")
    reader: Any = SimpleNamespace(run=lambda job: asyncio.to_thread(job))
    stream: Any = TopicReads(reader, lambda _: None).stream(topic)
    moved = {("subscription", str(uuid4())) for _ in range(2 * subscription_frames.MOST + 1)}
    assert len(await stream._read(moved, stream)) == len(moved)
    assert sizes == [subscription_frames.MOST, subscription_frames.MOST, 1]

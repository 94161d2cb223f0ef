"""Hundreds of sockets that reconnect at once share a few reads, and each gets its rows once and in order."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from sessions.live import feeds
from sessions.live.feeds import FEED_ROWS
from sessions.live.streams import TopicSubscription
from sessions.live.topic_reads import TopicReads
from sessions.live.topics import Topic, parse

NEWEST = 10 * FEED_ROWS + 7


class Reader:
    """The single reader thread: one read at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, job: Callable[[], Any]) -> Any:
        async with self._turn:
            await asyncio.sleep(0)
            return job()


class Listener:
    viewer = None
    suspended = False
    has_room = True

    def __init__(self) -> None:
        self.texts: list[str] = []

    def put(self, text: str) -> None:
        self.texts.append(text)

    async def room(self) -> None:
        pass

    @property
    def seqs(self) -> list[int]:
        return [row["seq"] for text in self.texts for row in json.loads(text).get("rows", [])]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The cursors from which rows were read."""
    found: list[int] = []

    def rows(seq: int, limit: int) -> list[dict[str, int]]:
        found.append(seq)
        return [{"seq": number} for number in range(seq + 1, min(NEWEST, seq + limit) + 1)]

    monkeypatch.setattr(feeds, "_audit_after", rows)
    monkeypatch.setattr(feeds, "feed_head", lambda topic: NEWEST)
    return found


async def test_sockets_that_come_back_together_share_their_reads(reads: list[int]) -> None:
    topic: Topic = parse("audit")
    stream = TopicReads(Reader(), lambda _: None).stream(topic)  # type: ignore[arg-type]  # only `run` is used
    cursors = [0] * 150 + [3 * FEED_ROWS + 1] * 50 + list(range(40, 45))
    listeners = [Listener() for _ in cursors]
    behind = [TopicSubscription(listener, topic, cursor) for listener, cursor in zip(listeners, cursors, strict=True)]
    stream.subscriptions.update(behind)
    await asyncio.gather(*(stream.catch_up(subscription) for subscription in behind))
    for listener, cursor in zip(listeners, cursors, strict=True):
        assert listener.seqs == list(range(cursor + 1, NEWEST + 1))
    assert len(reads) < 100
    texts = {text for listener in listeners for text in listener.texts}
    whole_blocks = [text for text in texts if len(json.loads(text).get("rows", [])) == FEED_ROWS]
    assert len(whole_blocks) == NEWEST // FEED_ROWS


async def test_a_row_that_was_committed_while_others_read_is_in_the_next_read(reads: list[int]) -> None:
    """A read that has already begun is not shared."""
    topic: Topic = parse("audit")
    stream: Any = TopicReads(Reader(), lambda _: None).stream(topic)  # type: ignore[arg-type]  # only `run` is used
    first = asyncio.create_task(stream._read_after(NEWEST))
    while not reads:  # noqa: ASYNC110 - the test waits for turns of the event loop
        await asyncio.sleep(0)
    second = asyncio.create_task(stream._read_after(NEWEST))
    await asyncio.gather(first, second)
    assert reads == [NEWEST, NEWEST]

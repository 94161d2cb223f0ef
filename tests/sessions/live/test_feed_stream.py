"""A feed has no gap, whatever the order in which reads for a new listener and for earlier ones finish."""

import asyncio
import json
from collections.abc import Callable

from sessions.live.feeds import FeedPart
from sessions.live.streams import FeedStream, TopicSubscription
from sessions.live.topics import parse


class Listener:
    viewer = None
    suspended = False
    has_room = True

    def __init__(self) -> None:
        self.seqs: list[int] = []

    def put(self, text: str) -> None:
        self.seqs += [row["seq"] for row in json.loads(text).get("rows", [])]

    async def room(self) -> None:
        pass


class Feed:
    """Rows 1 to `newest`. A read takes the rows that exist when it begins and returns them when its gate opens."""

    def __init__(self) -> None:
        self.newest = 0
        self.oldest = 1
        self.gates: list[asyncio.Event] = []
        self.held = False
        self.stream = FeedStream(parse("audit"), self._after, self._head, "event", lambda _: None)

    async def _head(self) -> int:
        return self.newest

    async def _after(self, seq: int) -> FeedPart:
        rows = [{"seq": number} for number in range(max(seq + 1, self.oldest), self.newest + 1)]
        if self.held:
            self.gates.append(gate := asyncio.Event())
            await gate.wait()
        return FeedPart(rows, more=False)

    def subscription(self, cursor: int | None) -> tuple[Listener, TopicSubscription]:
        listener = Listener()
        subscription = TopicSubscription(listener, self.stream.topic, cursor)
        self.stream.subscriptions.add(subscription)
        return listener, subscription

    async def reads(self, count: int) -> None:
        await until(lambda: len(self.gates) >= count)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - waits for turns of the event loop, which no event reports
            await asyncio.sleep(0)


async def test_rows_read_for_others_while_a_listener_becomes_live_reach_it_too() -> None:
    feed = Feed()
    early, subscribed = feed.subscription(None)
    await feed.stream.catch_up(subscribed)
    late, joining = feed.subscription(0)
    feed.held, feed.newest = True, 5
    catching_up = asyncio.create_task(feed.stream.catch_up(joining))
    await feed.reads(1)
    feed.newest = 10
    feed.stream.recheck()
    await feed.reads(2)
    feed.gates[0].set()  # five rows: the new listener becomes live while the read of ten rows for the others is pending
    await catching_up
    feed.gates[1].set()
    await until(lambda: early.seqs == list(range(1, 11)))
    assert late.seqs == list(range(1, 11))
    await feed.stream.close()


async def test_a_read_that_found_nothing_is_repeated_when_others_had_rows_meanwhile() -> None:
    feed = Feed()
    early, subscribed = feed.subscription(None)
    await feed.stream.catch_up(subscribed)
    late, joining = feed.subscription(0)
    feed.held = True
    catching_up = asyncio.create_task(feed.stream.catch_up(joining))
    await feed.reads(1)
    feed.held, feed.newest = False, 3
    feed.stream.recheck()
    await until(lambda: early.seqs == [1, 2, 3])
    feed.gates[0].set()
    await catching_up
    assert late.seqs == [1, 2, 3]
    await feed.stream.close()


async def test_rows_that_were_deleted_do_not_keep_a_listener_behind() -> None:
    feed = Feed()
    early, subscribed = feed.subscription(None)
    await feed.stream.catch_up(subscribed)
    feed.newest = 3
    feed.stream.recheck()
    await until(lambda: early.seqs == [1, 2, 3])
    feed.oldest = 4
    late, joining = feed.subscription(1)
    async with asyncio.timeout(5):
        await feed.stream.catch_up(joining)
    feed.newest = 4
    feed.stream.recheck()
    await until(lambda: early.seqs == [1, 2, 3, 4])
    assert late.seqs == [4]
    await feed.stream.close()

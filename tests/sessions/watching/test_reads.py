"""When a watched resource is read: together, one after the other, never more often than its interval."""

import asyncio

import pytest

from sessions.enums import VersionCause
from sessions.host import reads
from sessions.host.reads import Reads, Wish
from sessions.protocol.backoff import Backoff

UPDATED = Wish(VersionCause.UPDATED, 1)
GAP = Wish(VersionCause.AFTER_GAP)


class Server:
    """Reads of it end when the test says so."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Wish]] = []
        self.open = 0
        self.most = 0
        self.results: list[bool] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()

    async def read(self, uri: str, wish: Wish) -> bool:
        self.made.append((uri, wish))
        self.open += 1
        self.most = max(self.most, self.open)
        self.began.set()
        try:
            await self.gate.wait()
        finally:
            self.open -= 1
        return self.results.pop(0) if self.results else True

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.made) < count:
                self.began.clear()
                await self.began.wait()


def watching(server: Server, interval: float = 0.0, uris: str = "a") -> Reads:
    made = Reads(server.read)
    made.keep(dict.fromkeys(uris, interval))
    return made


async def test_what_comes_during_a_read_is_one_more_read_after_it() -> None:
    server = Server()
    made = watching(server)
    server.gate.clear()
    made.want("a", UPDATED)
    await server.until(1)
    for _ in range(5):
        made.want("a", UPDATED)
    server.gate.set()
    await server.until(2)
    await made.close()
    assert server.made == [("a", UPDATED), ("a", Wish(VersionCause.UPDATED, 5))]


async def test_what_comes_before_a_read_joins_it_and_the_gap_is_its_reason() -> None:
    server = Server()
    made = watching(server)
    for wish in (UPDATED, GAP, UPDATED, Wish(VersionCause.POLLED)):
        made.want("a", wish)
    await server.until(1)
    await made.close()
    assert server.made == [("a", Wish(VersionCause.AFTER_GAP, 2))]


async def test_four_are_read_at_once_and_all_in_the_end() -> None:
    server = Server()
    made = watching(server, uris="abcdefghij")
    server.gate.clear()
    for uri in "abcdefghij":
        made.want(uri, UPDATED)
    await server.until(reads.AT_ONCE)
    server.gate.set()
    await server.until(10)
    await made.close()
    assert (server.most, {uri for uri, _ in server.made}) == (reads.AT_ONCE, set("abcdefghij"))


async def test_the_next_read_waits_for_the_interval_and_takes_all_that_came_along() -> None:
    server = Server()
    made = watching(server, interval=3_600.0)
    made.want("a", UPDATED)
    await server.until(1)
    for _ in range(3):
        made.want("a", UPDATED)
        await asyncio.sleep(0)
    assert len(server.made) == 1
    made.keep({"a": 0.0})
    made.want("a", UPDATED)
    await server.until(2)
    await made.close()
    assert server.made[1][1].events == 4


async def test_a_failed_read_is_tried_again_with_what_it_was_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "RETRY_FIRST", 0.0)
    monkeypatch.setattr(Backoff, "delay", lambda self, retry_after=None: 0.0)
    server = Server()
    server.results = [False, False, True]
    made = watching(server)
    made.want("a", Wish(VersionCause.AFTER_GAP, 2))
    await server.until(3)
    await made.close()
    assert {wish for _, wish in server.made} == {Wish(VersionCause.AFTER_GAP, 2)}


async def test_news_do_not_wait_for_the_retry_of_a_failed_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "RETRY_FIRST", 3_600.0)
    server = Server()
    server.results = [False]
    made = watching(server)
    made.want("a", UPDATED)
    await server.until(1)
    await asyncio.sleep(0)
    made.want("a", UPDATED)
    await server.until(2)
    await made.close()
    assert server.made[1][1].events == 2


async def test_what_is_not_watched_any_more_is_not_read() -> None:
    server = Server()
    made = watching(server, uris="ab")
    server.gate.clear()
    made.want("a", UPDATED)
    await server.until(1)
    made.keep({"b": 0.0})
    made.want("a", UPDATED)
    made.want("b", UPDATED)
    server.gate.set()
    await server.until(2)
    await made.close()
    assert [uri for uri, _ in server.made] == ["a", "b"]
    assert server.open == 0

"""When a watched resource is read: notifications are merged, reads are serialized, and the interval is respected."""

import asyncio

import pytest

from sessions.enums import VersionCause
from sessions.host.subscriptions import reads
from sessions.host.subscriptions.reads import ReadReason, Reads
from sessions.mcp.core.backoff import Backoff

UPDATED = ReadReason(VersionCause.UPDATED, 1)
GAP = ReadReason(VersionCause.AFTER_GAP)


class Server:
    """A server whose reads end when the test opens the gate."""

    def __init__(self) -> None:
        self.made: list[tuple[str, ReadReason]] = []
        self.open = 0
        self.most = 0
        self.results: list[bool] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()

    async def read(self, uri: str, reason: ReadReason) -> bool:
        self.made.append((uri, reason))
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
    made.request("a", UPDATED)
    await server.until(1)
    for _ in range(5):
        made.request("a", UPDATED)
    server.gate.set()
    await server.until(2)
    await made.close()
    assert server.made == [("a", UPDATED), ("a", ReadReason(VersionCause.UPDATED, 5))]


async def test_what_comes_before_a_read_joins_it_and_the_gap_is_its_reason() -> None:
    server = Server()
    made = watching(server)
    for reason in (UPDATED, GAP, UPDATED, ReadReason(VersionCause.POLLED)):
        made.request("a", reason)
    await server.until(1)
    await made.close()
    assert server.made == [("a", ReadReason(VersionCause.AFTER_GAP, 2))]


async def test_four_are_read_at_once_and_all_in_the_end() -> None:
    server = Server()
    made = watching(server, uris="abcdefghij")
    server.gate.clear()
    for uri in "abcdefghij":
        made.request(uri, UPDATED)
    await server.until(reads.AT_ONCE)
    server.gate.set()
    await server.until(10)
    await made.close()
    assert (server.most, {uri for uri, _ in server.made}) == (reads.AT_ONCE, set("abcdefghij"))


async def test_the_next_read_waits_for_the_interval_and_takes_all_that_came_along() -> None:
    server = Server()
    made = watching(server, interval=3_600.0)
    made.request("a", UPDATED)
    await server.until(1)
    for _ in range(3):
        made.request("a", UPDATED)
        await asyncio.sleep(0)
    assert len(server.made) == 1
    made.keep({"a": 0.0})
    made.request("a", UPDATED)
    await server.until(2)
    await made.close()
    assert server.made[1][1].events == 4


async def test_a_shorter_interval_counts_for_a_read_that_waits_already() -> None:
    server = Server()
    made = watching(server, interval=3_600.0)
    made.request("a", UPDATED)
    await server.until(1)
    made.request("a", UPDATED)
    await asyncio.sleep(0)
    made.keep({"a": 0.0})
    await server.until(2)
    await made.close()
    assert [reason.events for _, reason in server.made] == [1, 1]


async def test_a_failed_read_is_tried_again_with_what_it_was_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "RETRY_FIRST", 0.0)
    monkeypatch.setattr(Backoff, "delay", lambda self, retry_after=None: 0.0)
    server = Server()
    server.results = [False, False, True]
    made = watching(server)
    made.request("a", ReadReason(VersionCause.AFTER_GAP, 2))
    await server.until(3)
    await made.close()
    assert {reason for _, reason in server.made} == {ReadReason(VersionCause.AFTER_GAP, 2)}


async def test_news_do_not_wait_for_the_retry_of_a_failed_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "RETRY_FIRST", 3_600.0)
    server = Server()
    server.results = [False]
    made = watching(server)
    made.request("a", UPDATED)
    await server.until(1)
    await asyncio.sleep(0)
    made.request("a", UPDATED)
    await server.until(2)
    await made.close()
    assert server.made[1][1].events == 2


async def test_suspects_wait_and_are_read_one_by_one_beside_the_others() -> None:
    server = Server()
    made = Reads(server.read)
    made.keep(dict.fromkeys("abcd", 0.0), {"a": 0.05, "b": 0.0, "c": 3_600.0})
    server.gate.clear()
    for uri in "abcd":
        made.request(uri, UPDATED)
    await server.until(2)
    await asyncio.sleep(0.1)
    assert {uri for uri, _ in server.made} == {"b", "d"}
    assert made.under_way() == ["b"]
    server.gate.set()
    await server.until(3)
    await asyncio.sleep(0)
    assert server.made[2][0] == "a"
    server.gate.clear()
    for uri in "ad":
        made.request(uri, UPDATED)
    await server.until(5)
    assert made.under_way() == ["a", "d"], "a is none any more"
    server.gate.set()
    await made.close()
    assert "c" not in {uri for uri, _ in server.made}, "a notification does not shorten its pause"


async def test_what_is_not_watched_any_more_is_not_read() -> None:
    server = Server()
    made = watching(server, uris="ab")
    server.gate.clear()
    made.request("a", UPDATED)
    await server.until(1)
    made.keep({"b": 0.0})
    made.request("a", UPDATED)
    made.request("b", UPDATED)
    server.gate.set()
    await server.until(2)
    await made.close()
    assert [uri for uri, _ in server.made] == ["a", "b"]
    assert server.open == 0

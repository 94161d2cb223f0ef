"""What a socket may leave unread is counted in bytes, as its limits and the web server count it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sessions.live.consumer import LiveConsumer
from sessions.live.limits import CALL_BYTES, TEXT_BYTES
from sessions.live.outbox import ROOM_BYTES, Outbox
from sessions.mcp.core.flow import TokenBucket

pytestmark = pytest.mark.asyncio


class SlowPage:
    """Takes nothing until it may."""

    def __init__(self) -> None:
        self.may_take, self.taken = asyncio.Event(), asyncio.Queue[str]()
        self.outbox = Outbox(self._send, lambda: 0, lambda: None)

    async def _send(self, text: str) -> None:
        await self.may_take.wait()
        self.taken.put_nowait(text)


@pytest.fixture
async def slow() -> AsyncIterator[SlowPage]:
    found = SlowPage()
    yield found
    await found.outbox.close()


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀"])
async def test_room_ends_and_returns_by_the_bytes_of_what_waits(slow: SlowPage, letter: str) -> None:
    text = letter * (ROOM_BYTES // len(letter.encode()))
    slow.outbox.put(text)
    assert slow.outbox.has_room
    slow.outbox.put(letter)
    assert not slow.outbox.has_room
    slow.may_take.set()
    assert [await slow.taken.get() for _ in range(2)] == [text, letter]
    await slow.outbox.room()


class Asking(LiveConsumer):
    """Says with which code it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.socket, self._closing, self.code, self.handled = None, False, 0, 0
        self._bucket = TokenBucket(1, 1)

    def _shut(self, code: int) -> None:
        self.code = code

    async def _handle(self, body: dict[str, Any]) -> None:
        self.handled += 1


@pytest.mark.parametrize(("op", "most"), [("ping", TEXT_BYTES), ("call", CALL_BYTES)])
async def test_the_size_of_a_message_is_that_of_its_bytes(monkeypatch: pytest.MonkeyPatch, op: str, most: int) -> None:
    async def decoded(asking: Asking, text: str) -> dict[str, Any]:
        return {"op": op}

    monkeypatch.setattr(Asking, "_decode", decoded)
    for text, code in (
        ("語" * (most // 3), 0),
        ("語" * (most // 3 + 1), 4009),
        ("a" * most, 0),
        ("a" * (most + 1), 4009),
    ):
        asking = Asking()
        await asking.receive(text)
        assert (asking.code, asking.handled) == (code, 0 if code else 1)

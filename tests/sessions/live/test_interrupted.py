"""Sockets whose application Daphne cancels, because it was busy when the browser left."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from sessions.live import consumer
from sessions.live.consumer import LiveConsumer
from sessions.live.socket import Socket
from sessions.live.viewers import Viewer


class Door:
    """In place of the hub: counts a socket before it says whether there is room, as the hub does."""

    def __init__(self) -> None:
        self.sockets: set[Socket] = set()
        self.entered, self.may_stay = asyncio.Event(), asyncio.Event()
        self.pulse = SimpleNamespace(health=None)

    async def add(self, socket: Socket) -> bool:
        self.sockets.add(socket)
        self.entered.set()
        await self.may_stay.wait()
        return True

    def remove(self, socket: Socket) -> None:
        self.sockets.discard(socket)


class Tab:
    def __init__(self) -> None:
        self.says: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.welcomed = asyncio.Event()
        user = get_user_model()(pk=1, is_superuser=True)
        scope = {"type": "websocket", "user": user, "session": SimpleNamespace(session_key="key")}
        self.application = asyncio.create_task(LiveConsumer()(scope, self.says.get, self._hears))

    async def _hears(self, message: dict[str, Any]) -> None:
        if "welcome" in message.get("text", ""):
            self.welcomed.set()

    def hello(self) -> None:
        self.says.put_nowait({"type": "websocket.connect"})
        self.says.put_nowait({"type": "websocket.receive", "text": '{"op":"hello","ticket":"t"}'})


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    found = Door()
    monkeypatch.setattr(consumer, "hub", lambda: found)

    async def viewer(self: LiveConsumer, ticket: str) -> Viewer:
        return Viewer(self.scope["user"], "key")

    monkeypatch.setattr(LiveConsumer, "_viewer", viewer)
    return found


@pytest.fixture
async def tab(door: Door) -> AsyncIterator[Tab]:
    found = Tab()
    yield found
    found.application.cancel()
    await asyncio.gather(found.application, return_exceptions=True)


async def test_a_socket_whose_hello_is_cancelled_takes_no_place_of_its_user(door: Door, tab: Tab) -> None:
    tab.hello()
    await asyncio.wait_for(door.entered.wait(), 20)
    assert len(door.sockets) == 1
    tab.application.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tab.application
    assert door.sockets == set()


async def test_a_socket_that_is_cancelled_without_a_disconnect_leaves_the_hub(door: Door, tab: Tab) -> None:
    door.may_stay.set()
    tab.hello()
    await asyncio.wait_for(tab.welcomed.wait(), 20)
    assert len(door.sockets) == 1
    tab.application.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tab.application
    assert door.sockets == set()

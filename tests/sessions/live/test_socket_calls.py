"""Calls and topics of a socket whose page left, whose permissions changed, or whose database is away."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError

from servers.audit.record import Actor
from sessions.live import socket_calls
from sessions.live.early import EarlyHints
from sessions.live.hub import Hub
from sessions.live.reader import Reader
from sessions.live.socket import Socket
from sessions.live.topic_reads import TopicReads
from sessions.live.viewers import Viewer


@pytest.fixture
async def socket() -> Any:
    async def send(text: str) -> None:
        pass

    user = get_user_model()(pk=1, is_superuser=True)
    found = Socket(Viewer(user, "key"), Actor.of_user(user), send, lambda code: None, lambda: 0)
    yield found
    await found.end()


@pytest.fixture
def hub() -> Any:
    found: Any = object.__new__(Hub)
    found.sockets, found.streams, found._own, found._early = set(), {}, {}, EarlyHints()
    found._reads = TopicReads(Reader(), lambda subscription: None)
    return found


async def test_an_open_socket_follows_the_call_that_it_placed(hub: Any, socket: Socket) -> None:
    hub.sockets.add(socket)
    assert hub.follow(socket, uuid4(), 1)
    assert len(hub.streams) == 1


async def test_a_socket_that_closed_while_its_call_was_placed_follows_nothing(hub: Any, socket: Socket) -> None:
    assert not hub.follow(socket, uuid4(), 1)
    assert (hub.streams, socket.subscriptions) == ({}, {})


async def test_a_topic_that_is_denied_when_it_is_checked_again_leaves_its_stream(hub: Any, socket: Socket) -> None:
    """Otherwise this process would keep reading the stream without a listener."""

    async def sees_nothing(job: Callable[[], Any]) -> bool:
        return False

    hub.sockets.add(socket)
    assert hub.follow(socket, uuid4(), 1)
    (subscription,), (stream,) = socket.subscriptions.values(), hub.streams.values()
    hub.reader = SimpleNamespace(run=sees_nothing)
    await hub._catch_up(subscription)
    assert (socket.subscriptions, stream.subscriptions) == ({}, set())
    assert stream.idle_since is not None


async def test_a_page_whose_permissions_are_being_checked_places_and_cancels_nothing(
    hub: Any, socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its viewer has the permissions from before the change."""

    async def run(*_: Any) -> Any:
        raise AssertionError("nothing may be read or written for it")

    told: list[str] = []
    monkeypatch.setattr(socket, "put", told.append)
    monkeypatch.setattr(socket_calls, "_placed", run)
    socket.suspended = True
    server = str(uuid4())
    await socket_calls.call(hub, socket, {"op": "call", "ref": 1, "server": server, "target": "echo", "args": {}})
    await socket_calls.cancel(
        cast(Reader, SimpleNamespace(run=run)), socket, {"op": "cancel", "ref": 2, "call": server}
    )
    assert [(answer["op"], answer["ref"]) for answer in map(json.loads, told)] == [("rejected", 1), ("rejected", 2)]
    assert "permissions are being checked" in told[0]


async def test_a_page_is_told_at_once_that_its_call_cannot_be_cancelled_without_the_database(
    socket: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(job: Callable[[], Any]) -> Any:
        raise OperationalError("the database is away")

    told: list[str] = []
    monkeypatch.setattr(socket, "put", told.append)
    reader = cast(Reader, SimpleNamespace(run=run))
    await socket_calls.cancel(reader, socket, {"op": "cancel", "ref": 7, "call": str(uuid4())})
    (answer,) = map(json.loads, told)
    assert (answer["op"], answer["ref"]) == ("rejected", 7)
    assert answer["message"] == "mcpadmin failed to cancel the call. Try again."

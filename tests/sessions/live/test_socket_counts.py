"""The numbers of sockets that web processes share in Redis, and what does not wait for it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from redis import Redis

from sessions.hints.outage import Outage
from sessions.live import socket_counts
from sessions.live.hub import Hub
from sessions.live.reader import Reader
from sessions.live.socket_counts import SocketCounts
from sessions.live.viewers import Seat, valid_viewers
from tests.servers.conftest import person


@pytest.fixture(autouse=True)
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    """Not that of the process, which an earlier test without Redis may have begun."""
    found = Outage()
    monkeypatch.setattr(socket_counts, "outage", found)
    return found


@pytest.fixture
def redis(valkey: Path) -> Iterator[Redis]:
    """Subscribes to the channel `here`, as the web process of that name does."""
    with Redis(unix_socket_path=str(valkey)) as client, client.pubsub() as listener:
        listener.subscribe("here")
        listener.get_message(timeout=5)
        yield client


def test_the_numbers_of_all_users_are_written_at_once_and_count_for_other_processes(redis: Redis) -> None:
    counts = SocketCounts()
    counts.write("here", {1: 2, 2: 1})
    assert [counts.elsewhere(user, "there") for user in (1, 2, 3)] == [2, 1, 0]
    counts.write("here", {1: 0, 2: 3})
    assert [counts.elsewhere(user, "there") for user in (1, 2)] == [0, 3]


def test_a_key_that_someone_else_wrote_is_removed_and_the_other_numbers_are_written(redis: Redis) -> None:
    counts = SocketCounts()
    counts._redis.rpush(counts._key(1), "garbage")
    counts.write("here", {1: 2, 2: 1})
    assert [counts.elsewhere(user, "there") for user in (1, 2)] == [0, 1]
    counts.write("here", {1: 2})
    assert counts.elsewhere(1, "there") == 2


def test_in_a_known_outage_redis_is_not_asked(redis: Redis, outage: Outage) -> None:
    counts = SocketCounts()
    outage.since = 0.0
    counts.write("here", {1: 2})
    outage.since = None
    assert counts.elsewhere(1, "there") == 0


class Browser(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.fixture
def seat(transactional_db: None) -> Seat:
    """Of a signed-in user."""
    ann = person("ann", "view_server")
    session = SessionStore()
    session.update({SESSION_KEY: str(ann.pk), BACKEND_SESSION_KEY: "b", HASH_SESSION_KEY: ann.get_session_auth_hash()})
    session.create()
    return ann.pk, str(session.session_key)


async def test_a_user_who_was_disabled_loses_the_socket_although_redis_does_not_answer(seat: Seat) -> None:
    answers, closed = threading.Event(), asyncio.Event()
    hub: Any = object.__new__(Hub)
    hub.reader, hub.streams, hub._watchers, hub._tasks = Reader(), {}, {}, set()
    hub._writing_counts, hub._listener = asyncio.Lock(), SimpleNamespace(channel="here")
    hub._socket_counts = SimpleNamespace(write=lambda *_: answers.wait())
    viewer = (await hub.reader.run(lambda: valid_viewers([seat])))[seat]
    hub.sockets = {Browser(viewer=viewer, subscriptions={}, give_up=lambda code: closed.set())}
    viewer.user.is_active = False
    await hub.reader.work(viewer.user.save)
    checking = asyncio.create_task(hub._recheck())
    try:
        async with asyncio.timeout(20):
            await closed.wait()
    finally:
        answers.set()
        await checking
        await asyncio.gather(*hub._tasks)

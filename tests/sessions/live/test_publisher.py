"""What one thread carries to the channel layer: rings first, hints together, nothing for ever."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest
from redis import Redis

from sessions.bus.bell import message
from sessions.bus.publisher import COMPANY_SECONDS, GROUP, LOST, Publisher, messages
from tests.tools.valkey import start, stop


class _SilentPublisher(Publisher):
    def start(self) -> None:
        """Nobody takes what is put."""


def hint(topic: str, kind: str = "call", **more: Any) -> dict[str, Any]:
    return {"t": topic, "seq": None, "kind": kind, "rows": None, **more}


class Heard:
    """What every web process would have heard."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    def next(self, seconds: float = 5.0) -> list[str]:
        """Topics of the next message."""
        found = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=seconds)
        assert found is not None, "nothing was sent"
        return [one["t"] for one in msgpack.unpackb(found["data"])["hints"]]


@pytest.fixture
def heard(valkey: Path) -> Iterator[Heard]:
    with Redis(unix_socket_path=str(valkey), protocol=2) as redis, redis.pubsub() as pubsub:
        pubsub.subscribe(f"mcpadmin__group__{GROUP}")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        yield Heard(pubsub)


# --- what goes together ----------------------------------------------------------------------------------------------
def test_rings_go_together_by_worker_and_in_order_and_before_hints() -> None:
    bodies = [message("call", UUID(int=number), 4, 9.0) for number in range(3)]
    rings = [("bell.w1", bodies[0]), ("bell.w2", bodies[0]), ("bell.w1", bodies[1]), ("bell.w1", bodies[2])]

    sent = list(messages(rings, [hint("audit")]))

    assert [group for group, _ in sent] == ["bell.w1", "bell.w2", GROUP]
    assert [body["rings"] for _, body in sent[:2]] == [bodies, bodies[:1]]


def test_of_more_rings_than_may_wait_the_newest_are_kept_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sessions.bus.publisher.QUEUE_LIMIT", 2)
    publisher = _SilentPublisher()
    for number in range(5):
        publisher.ring("bell.w1", message("call", UUID(int=number)))

    rings, _ = publisher._take()

    assert [ring["id"] for _, ring in rings] == [str(UUID(int=3)), str(UUID(int=4))]
    assert publisher.dropped == 3


def test_a_hint_that_nobody_waits_for_goes_along_with_one_that_somebody_does() -> None:
    publisher = _SilentPublisher()
    publisher.put(hint("audit"), patient=True)
    publisher.ring("bell.w1", message("call", UUID(int=1)))
    assert publisher._take()[1] == []
    publisher.put(hint("call.1"))
    assert [one["t"] for one in publisher._take()[1]] == ["call.1", "audit"]


def test_without_company_it_goes_alone_a_moment_later() -> None:
    publisher = _SilentPublisher()
    publisher.put(hint("audit"), patient=True)
    time.sleep(COMPANY_SECONDS)
    assert [one["t"] for one in publisher._take()[1]] == ["audit"]


# --- the thread ------------------------------------------------------------------------------------------------------
def test_hints_of_either_kind_arrive_and_are_flushed(heard: Heard) -> None:
    publisher = Publisher()
    publisher.put(hint("audit"), patient=True)
    assert publisher.flush()
    assert heard.next() == ["audit"]
    publisher.put(hint("call.1"))
    assert publisher.flush()
    assert heard.next() == ["call.1"]


def test_what_is_put_by_many_threads_at_once_is_sent_once_each(heard: Heard) -> None:
    publisher = Publisher()

    def put(thread: int) -> None:
        for number in range(200):
            publisher.put(hint(f"call.{thread}.{number}"), patient=number % 2 == 0)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.flush(5)
    topics: list[str] = []
    while len(topics) < 800:
        topics += heard.next()
    assert len(set(topics)) == len(topics) == 800


def test_after_hints_were_lost_everybody_is_asked_to_look_as_soon_as_redis_is_back(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "own.sock"
    layers = {"default": {**settings.CHANNEL_LAYERS["default"]}}
    layers["default"]["CONFIG"] = {**layers["default"]["CONFIG"], "hosts": [f"unix://{socket}"]}
    settings.CHANNEL_LAYERS = layers
    monkeypatch.setattr("sessions.bus.publisher.OWN_UP_SECONDS", 0.3)
    publisher = Publisher()
    publisher.put(hint("call.1"))
    assert publisher.flush(5)
    assert publisher.dropped == 1
    process = start(socket)
    try:
        with Redis(unix_socket_path=str(socket), protocol=2) as redis, redis.pubsub() as pubsub:
            pubsub.subscribe(f"mcpadmin__group__{GROUP}")
            assert pubsub.get_message(timeout=5)["type"] == "subscribe"
            assert Heard(pubsub).next() == [LOST]
    finally:
        stop(process)

"""The publisher sends wakes before hints, batches hints, and keeps a bounded queue."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
import pytest
from redis import Redis

from sessions.hints.group_sender import GroupSender
from sessions.hints.publisher import BATCH_SECONDS, GROUP, LOST, Publisher, messages
from sessions.hints.wake import message, worker_group
from tests.tools.bells import bells
from tests.tools.valkey import start, stop


class _SilentPublisher(Publisher):
    def start(self) -> None:
        """Starts no thread, so nothing consumes the queue."""


def hint(topic: str, kind: str = "call", **more: Any) -> dict[str, Any]:
    return {"t": topic, "seq": None, "kind": kind, "rows": None, **more}


class Heard:
    """Receives what every web process would receive."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    def next(self, seconds: float = 5.0) -> list[str]:
        """The topics of the next message."""
        found = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=seconds)
        assert found is not None, "nothing was sent"
        return [one["t"] for one in msgpack.unpackb(found["data"])["hints"]]


@pytest.fixture
def heard(valkey: Path) -> Iterator[Heard]:
    with Redis(unix_socket_path=str(valkey), protocol=2) as redis, redis.pubsub() as pubsub:
        pubsub.subscribe(f"mcpadmin__group__{GROUP}")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
        yield Heard(pubsub)


# --- batching --------------------------------------------------------------------------------------------------------
def test_rings_go_together_by_worker_and_in_order_and_before_hints() -> None:
    bodies = [message("call", UUID(int=number), 4, 9.0) for number in range(3)]
    rings = [("worker.w1", bodies[0]), ("worker.w2", bodies[0]), ("worker.w1", bodies[1]), ("worker.w1", bodies[2])]

    sent = list(messages(rings, [hint("audit")]))

    assert [group for group, _ in sent] == ["worker.w1", "worker.w2", GROUP]
    assert [body["wakes"] for _, body in sent[:2]] == [bodies, bodies[:1]]


def test_of_more_rings_than_may_wait_the_newest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sessions.hints.publisher.QUEUE_LIMIT", 2)
    publisher = _SilentPublisher()
    for number in range(5):
        publisher.wake("worker.w1", message("call", UUID(int=number)))

    rings, _ = publisher._take()

    assert [wake["id"] for _, wake in rings] == [str(UUID(int=3)), str(UUID(int=4))]


def test_a_hint_that_no_one_waits_for_goes_along_with_one_that_someone_does() -> None:
    publisher = _SilentPublisher()
    publisher.put(hint("audit"), deferred=True)
    publisher.wake("worker.w1", message("call", UUID(int=1)))
    assert publisher._take()[1] == []
    publisher.put(hint("call.1"))
    assert [one["t"] for one in publisher._take()[1]] == ["call.1", "audit"]


def test_without_company_it_goes_alone_a_moment_later() -> None:
    publisher = _SilentPublisher()
    publisher.put(hint("audit"), deferred=True)
    time.sleep(BATCH_SECONDS)
    assert [one["t"] for one in publisher._take()[1]] == ["audit"]


def test_a_state_that_passes_is_not_sent_beside_the_one_that_followed_it() -> None:
    passing = hint("call.1", rows=[{"passing": True}], seq=2)
    for queued in ([passing, hint("call.1", seq=3)], [hint("call.1", seq=3), passing]):
        [(_, body)] = list(messages([], queued))
        assert [one["seq"] for one in body["hints"]] == [3]


# --- the thread ------------------------------------------------------------------------------------------------------
def test_hints_of_either_kind_arrive_and_are_flushed(heard: Heard) -> None:
    publisher = Publisher()
    publisher.put(hint("audit"), deferred=True)
    assert publisher.flush()
    assert heard.next() == ["audit"]
    publisher.put(hint("call.1"))
    assert publisher.flush()
    assert heard.next() == ["call.1"]


def test_what_is_put_by_many_threads_at_once_is_sent_once_each(heard: Heard) -> None:
    publisher = Publisher()

    def put(thread: int) -> None:
        for number in range(200):
            publisher.put(hint(f"call.{thread}.{number}"), deferred=number % 2 == 0)

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
    monkeypatch.setattr("sessions.hints.publisher.LOSS_NOTICE_SECONDS", 0.3)
    publisher = Publisher()
    publisher.put(hint("call.1"))
    assert publisher.flush(5)
    process = start(socket)
    try:
        with Redis(unix_socket_path=str(socket), protocol=2) as redis, redis.pubsub() as pubsub:
            pubsub.subscribe(f"mcpadmin__group__{GROUP}")
            assert pubsub.get_message(timeout=5)["type"] == "subscribe"
            assert Heard(pubsub).next() == [LOST]
    finally:
        stop(process)


def test_after_redis_was_restarted_the_next_hint_arrives(tmp_path: Path, settings: Any) -> None:
    socket = tmp_path / "own.sock"
    config = {**settings.CHANNEL_LAYERS["default"]["CONFIG"], "hosts": [f"unix://{socket}"]}
    settings.CHANNEL_LAYERS = {"default": {**settings.CHANNEL_LAYERS["default"], "CONFIG": config}}
    process, wire = start(socket), GroupSender()
    try:
        wire.send(messages([], [hint("call.1")]))
        stop(process)
        process = start(socket)
        with Redis(unix_socket_path=str(socket), protocol=2) as redis, redis.pubsub() as pubsub:
            pubsub.subscribe(f"mcpadmin__group__{GROUP}")
            assert pubsub.get_message(timeout=5)["type"] == "subscribe"
            wire.send(messages([], [hint("call.2")]))
            assert Heard(pubsub).next() == ["call.2"]
    finally:
        stop(process)


@pytest.mark.parametrize("inline", [False, True], ids=["thread", "inline"])
def test_a_hint_that_cannot_be_written_takes_no_wake_along_and_everybody_is_asked_to_look(
    inline: bool, valkey: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.hints.publisher.LOSS_NOTICE_SECONDS", 0.1)
    monkeypatch.setattr("sessions.hints.publisher.LOSS_NOTICES", 1)
    worker = UUID(int=7)
    publisher = Publisher()
    with bells(valkey, worker) as rung:
        if inline:
            publisher.send_inline()
        publisher.put(hint("call.1", rows=[object()]))
        publisher.wake(worker_group(worker), message("call", UUID(int=1)))
        if inline:
            publisher.send_inline()
        assert rung.next()["id"] == str(UUID(int=1))
    assert heard.next() == [LOST]


# --- sending inline ----------------------------------------------------------------------------------------------------
def test_what_the_writers_thread_puts_is_sent_by_it_and_no_other_thread_is_started(heard: Heard) -> None:
    publisher = Publisher()
    assert publisher.send_inline() is None
    publisher.put(hint("call.1"))
    assert not publisher.flush(0.05)  # it waits until its own thread sends
    assert publisher.send_inline() is None
    assert heard.next() == ["call.1"]
    assert publisher.flush()
    assert publisher._thread is None


def test_a_hint_that_no_one_waits_for_is_due_a_moment_later_there_too(heard: Heard) -> None:
    publisher = Publisher()
    publisher.send_inline()
    publisher.put(hint("audit"), deferred=True)
    seconds = publisher.send_inline()
    assert seconds is not None
    assert 0 < seconds <= BATCH_SECONDS
    time.sleep(seconds)
    assert publisher.send_inline() is None
    assert heard.next() == ["audit"]


def test_while_redis_is_away_the_publishers_own_thread_takes_over_and_gives_back_when_it_is_reached_again(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "own.sock"
    layers = {"default": {**settings.CHANNEL_LAYERS["default"]}}
    layers["default"]["CONFIG"] = {**layers["default"]["CONFIG"], "hosts": [f"unix://{socket}"]}
    settings.CHANNEL_LAYERS = layers
    monkeypatch.setattr("sessions.hints.publisher.LOSS_NOTICE_SECONDS", 0.3)
    publisher = Publisher()
    publisher.send_inline()
    publisher.put(hint("call.1"))
    assert publisher.send_inline() is None
    assert publisher.flush(5)
    process = start(socket)
    try:
        with Redis(unix_socket_path=str(socket), protocol=2) as redis, redis.pubsub() as pubsub:
            pubsub.subscribe(f"mcpadmin__group__{GROUP}")
            assert pubsub.get_message(timeout=5)["type"] == "subscribe"
            listener = Heard(pubsub)
            assert listener.next() == [LOST]
            assert publisher.flush(5)
            publisher.put(hint("call.2"))
            publisher.send_inline()
            topics = listener.next()
            assert (topics if topics != [LOST] else listener.next()) == ["call.2"]
    finally:
        stop(process)


def test_a_publisher_whose_thread_could_not_be_started_is_started_by_what_is_put_next(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    publisher = Publisher()
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refused)
        publisher.put(hint("call.1"))
    publisher.put(hint("call.2"))
    assert publisher.flush()
    assert sorted(heard.next()) == ["call.1", "call.2"]

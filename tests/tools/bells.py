"""Receives the wakes that a worker process would receive."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack
from redis import Redis

from sessions import hints


class Bells:
    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub
        self._rings: list[dict[str, Any]] = []

    def next(self, seconds: float = 5.0) -> dict[str, Any]:
        while not self._rings:
            message = self._pubsub.get_message(ignore_subscribe_messages=True, timeout=seconds)
            assert message is not None, "nobody rang"
            self._rings += msgpack.unpackb(message["data"])["wakes"]
        return self._rings.pop(0)


@contextmanager
def bells(valkey: Path, worker_uid: UUID | str) -> Iterator[Bells]:
    """Collects the wakes of this worker from now on."""
    with Redis(unix_socket_path=str(valkey), protocol=2) as redis, redis.pubsub() as pubsub:
        pubsub.subscribe(f"mcpadmin__group__{hints.worker_group(worker_uid)}")
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"  # from now on no wake is missed
        yield Bells(pubsub)

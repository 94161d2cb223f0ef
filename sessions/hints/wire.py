"""Sends to groups of the channel layer from a plain thread. The layer itself sends only from a loop: 116 µs of
processor time per message, against 67 here."""

from collections.abc import Iterable
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

SEND_SECONDS = 2.0


class Wire:
    """For one thread. `seconds`: how long one answer of Redis may take."""

    def __init__(self, seconds: float = SEND_SECONDS) -> None:
        config = settings.CHANNEL_LAYERS["default"]["CONFIG"]
        times = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        # one immediate retry: the first command after a Redis restart finds a dead connection
        self._redis = Redis.from_url(config["hosts"][0], retry=Retry(NoBackoff(), 1), **times)
        self._layer = get_channel_layer()
        self._group = f"{config['prefix']}__group__{{}}"

    def send(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Sends all of them, or raises RedisError or OSError; some may have been received even then."""
        with self._redis.pipeline(transaction=False) as pipe:
            for group, message in messages:
                pipe.publish(self._group.format(group), self._layer.serialize(message))
            pipe.execute()

"""The number of sockets of each user across all web processes, counted in Redis.

Each process writes its own number for a user under the name of its listener's channel. A killed process no longer
subscribes to that channel, so its numbers do not count and its pages can reconnect at once.
"""

from collections.abc import Mapping

import structlog
from django.conf import settings
from redis import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from sessions.hints import outage

#: numbers are rewritten more often than that (hub.SLOW_SECONDS)
LIFETIME_SECONDS = 60
ANSWER_SECONDS = 1.0
#: web processes that count one user
MOST_PROCESSES = 256
log = structlog.get_logger(__name__)


class SocketCounts:
    """Every method waits for Redis, so never call one in a loop thread. Without Redis each process counts alone."""

    def __init__(self) -> None:
        self._config = settings.CHANNEL_LAYERS["default"]["CONFIG"]
        times = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
        # One connection for all threads: answers take microseconds, and a larger pool would grow on every overlap.
        pool = BlockingConnectionPool.from_url(
            self._config["hosts"][0], max_connections=1, timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 1), **times
        )
        self._redis = Redis(connection_pool=pool)

    def write(self, process: str, counts: Mapping[int, int]) -> None:
        """Store the numbers of this process's sockets, by user."""
        if outage.since is not None:
            return
        keys: list[str] = []  # the key of each command
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                for user_id, count in counts.items():
                    key = self._key(user_id)
                    if count:
                        pipe.hset(key, process, count)
                        pipe.expire(key, LIFETIME_SECONDS)
                        keys += [key, key]
                    else:
                        pipe.hdel(key, process)
                        keys.append(key)
                results = pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as problem:
            outage.noticed(problem)
            return
        for key, result in zip(keys, results, strict=True):
            if isinstance(result, RedisError):
                self._failed(result, key)

    def elsewhere(self, user_id: int, process: str) -> int:
        """The number of a user's sockets in other live processes."""
        if outage.since is not None:
            return 0
        key = self._key(user_id)
        try:
            counts = self._redis.hgetall(key)
            if len(counts) > MOST_PROCESSES or not all(map(_is_count, counts.values())):
                self._forget(key)
                return 0
            others = {name: int(count) for name, count in counts.items() if name != process.encode()}
            if not others:
                return 0
            alive = {name for name, listeners in self._redis.pubsub_numsub(*others) if listeners}
            if dead := others.keys() - alive:
                self._redis.hdel(key, *dead)
        except (RedisError, OSError) as problem:
            self._failed(problem, key)
            return 0
        return sum(count for name, count in others.items() if name in alive)

    def _failed(self, problem: Exception, key: str) -> None:
        if isinstance(problem, ResponseError) and "WRONGTYPE" in str(problem):  # the key is not a hash
            self._forget(key)
        else:
            outage.noticed(problem)

    def _forget(self, key: str) -> None:
        """Delete a key that something else wrote. Every process writes its numbers again (hub.SLOW_SECONDS)."""
        log.warning("places.not_ours", key=key)
        try:
            self._redis.delete(key)
        except (RedisError, OSError) as problem:
            outage.noticed(problem)

    def _key(self, user_id: int) -> str:
        return f"{self._config['prefix']}:live-sockets:{user_id}"


def _is_count(text: bytes | str) -> bool:
    return text.isdigit() and len(text) < 6

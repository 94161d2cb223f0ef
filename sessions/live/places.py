"""The number of sockets of each user over all web processes, counted in Redis.

Each process writes its own number for a user under the name of its listener's channel. A killed process no longer
subscribes to that channel, so its numbers do not count and its pages can reconnect at once.
"""

from django.conf import settings
from redis import BlockingConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from sessions.hints import outage

#: numbers are rewritten more often than that (hub.SLOW_SECONDS)
LIFETIME_SECONDS = 60
ANSWER_SECONDS = 1.0


class Places:
    """Every method waits for Redis, so never call one in a loop thread. Without Redis each process counts alone."""

    def __init__(self) -> None:
        self._config = settings.CHANNEL_LAYERS["default"]["CONFIG"]
        times = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
        # One connection for all threads: answers take microseconds, and a larger pool would grow on every overlap.
        pool = BlockingConnectionPool.from_url(
            self._config["hosts"][0], max_connections=1, timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 1), **times
        )
        self._redis = Redis(connection_pool=pool)

    def write(self, user_id: int, process: str, count: int) -> None:
        """Store the number of this process's sockets of a user."""
        key = self._key(user_id)
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                if count:
                    pipe.hset(key, process, count)
                    pipe.expire(key, LIFETIME_SECONDS)
                else:
                    pipe.hdel(key, process)
                pipe.execute()
        except (RedisError, OSError) as problem:
            outage.noticed(problem)

    def elsewhere(self, user_id: int, process: str) -> int:
        """The number of a user's sockets in other live processes."""
        try:
            counts = self._redis.hgetall(self._key(user_id))
            others = {name: int(count) for name, count in counts.items() if name != process.encode()}
            if not others:
                return 0
            alive = {name for name, listeners in self._redis.pubsub_numsub(*others) if listeners}
            if dead := others.keys() - alive:
                self._redis.hdel(self._key(user_id), *dead)
        except (RedisError, OSError) as problem:
            outage.noticed(problem)
            return 0
        return sum(count for name, count in others.items() if name in alive)

    def _key(self, user_id: int) -> str:
        return f"{self._config['prefix']}:live-sockets:{user_id}"

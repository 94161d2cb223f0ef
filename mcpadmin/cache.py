"""Django's cache in a Redis that is not trusted.

A value is JSON with its expiry, signed together with its key: what does not verify counts as absent, and so does a
value that outlived its time or was copied from another key. A counter is the exception, since Redis counts it: `add`
with a number starts it, `incr` counts and reads it, `get` does not see it. Its key must expire within the time that we
gave it. A key of another type, or anything else in its place, is removed.

Someone who can write to Redis can still delete values and put back one that has not expired.
"""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from django.core.signing import BadSignature, Signer
from redis.exceptions import ResponseError

T = TypeVar("T")
SALT = "mcpadmin.cache"
ABSENT = object()


def signed(key: str, value: Any, timeout: int | None) -> str:
    expires = None if timeout is None else time.time() + timeout
    return _signer(key).sign(json.dumps([value, expires]))


def verified(key: str, data: Any) -> Any:
    """The value, or ABSENT. `data`: the bytes that Redis has, or None."""
    if data is None:
        return ABSENT
    try:
        value, expires = json.loads(_signer(key).unsign(data.decode()))
    except (BadSignature, ValueError):
        return ABSENT
    return ABSENT if expires is not None and expires < time.time() else value


def _signer(key: str) -> Signer:
    return Signer(salt=f"{SALT}:{key}")


class SignedClient(RedisCacheClient):
    """The commands of RedisCacheClient that we use, on signed values and counters."""

    def add(self, key: Any, value: Any, timeout: Any) -> bool:
        client, counts = self.get_client(key, write=True), type(value) is int
        data = value if counts else signed(key, value, timeout)
        if client.set(key, data, ex=timeout or None, nx=True):
            return True
        if self._counts(key, timeout) if counts else self.get(key, ABSENT) is not ABSENT:
            return False
        client.delete(key)
        return bool(client.set(key, data, ex=timeout or None, nx=True))

    def get(self, key: Any, default: Any) -> Any:
        client = self.get_client(key)
        value = verified(key, self._healed(key, lambda: client.get(key)))
        return default if value is ABSENT else value

    def set(self, key: Any, value: Any, timeout: Any) -> None:
        client = self.get_client(key, write=True)
        if timeout == 0:
            client.delete(key)
        else:
            client.set(key, signed(key, value, timeout), ex=timeout)

    def get_many(self, keys: Any) -> dict[Any, Any]:
        found = {key: self.get(key, ABSENT) for key in keys}
        return {key: value for key, value in found.items() if value is not ABSENT}

    def set_many(self, data: Any, timeout: Any) -> None:
        for key, value in data.items():
            self.set(key, value, timeout)

    def has_key(self, key: Any) -> bool:
        return self.get(key, ABSENT) is not ABSENT

    def incr(self, key: Any, delta: int) -> int:
        """Raises ValueError if there is no counter, as Django documents."""
        client = self.get_client(key, write=True)
        if self._healed(key, lambda: client.get(key)) is None:
            raise ValueError(f"Key {key!r} not found.")
        try:
            return int(client.incr(key, delta))
        except ResponseError as problem:
            if "not an integer or out of range" not in str(problem) and "would overflow" not in str(problem):
                raise
            client.delete(key)
            raise ValueError(f"Key {key!r} not found.") from None

    def clear(self) -> bool:
        raise NotImplementedError("our code must not empty a Redis database; delete the keys by name")

    def _counts(self, key: Any, timeout: Any) -> bool:
        """Whether the key holds one of our counters."""
        client = self.get_client(key)
        found = self._healed(key, lambda: client.get(key))
        if found is None or not found.isdigit():
            return False
        return timeout is None or 0 <= client.pttl(key) <= 1000 * timeout

    def _healed(self, key: Any, command: Callable[[], T]) -> T | None:
        try:
            return command()
        except ResponseError as problem:
            if "WRONGTYPE" not in str(problem):
                raise
            self.get_client(key, write=True).delete(key)
            return None


class SignedRedisCache(RedisCache):
    def __init__(self, server: Any, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._class = SignedClient

"""The cache believes only what it wrote: pickles, garbage, copies and keys of another type count as absent."""

import ast
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import BaseCache
from redis import Redis

from mcpadmin import settings as product
from mcpadmin.cache import SignedRedisCache, signed
from mcpadmin.up import valkey as server


@pytest.fixture
def cache(valkey: Path) -> BaseCache:
    return SignedRedisCache(f"unix://{valkey}?db=2", {"KEY_PREFIX": server.CACHE})


@pytest.fixture
def redis(valkey: Path) -> Iterator[Redis]:
    with Redis(unix_socket_path=str(valkey), db=2) as client:
        yield client


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_a_pickle_in_the_key_space_does_nothing(cache: BaseCache, redis: Redis, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        redis.set(cache.make_key("rate"), pickle.dumps(Payload(proof), protocol))
        assert cache.get("rate", "absent") == "absent"
        assert cache.get_many(["rate"]) == {}
        assert cache.add("rate", [1.5], 60)
        assert cache.get("rate") == [1.5]
    assert not proof.exists()


def test_values_and_counters_come_back_as_set(cache: BaseCache) -> None:
    cache.set("a", {"list": [1, None, "ü"]}, 60)
    assert cache.get("a") == {"list": [1, None, "ü"]}
    assert "a" in cache
    assert not cache.add("a", "other", 60)
    assert cache.add("n", 0, 60)
    assert not cache.add("n", 0, 60)
    assert [cache.incr("n"), cache.incr("n", 5)] == [1, 6]
    cache.delete("n")
    with pytest.raises(ValueError, match="not found"):
        cache.incr("n")
    cache.set_many({"x": 1, "y": [2]}, 60)
    assert cache.get_many(["x", "y", "z"]) == {"x": 1, "y": [2]}


FORGED: dict[str, Callable[[Redis, str], Any]] = {
    "text": lambda redis, key: redis.set(key, "garbage"),
    "bytes": lambda redis, key: redis.set(key, b"\xff\xfe"),
    "a number": lambda redis, key: redis.set(key, 7),
    "a huge number": lambda redis, key: redis.set(key, "9" * 400),
    "unsigned JSON": lambda redis, key: redis.set(key, "[[1], null]:x"),
    "a value of another key": lambda redis, key: redis.set(key, signed("another", [1.0], 60)),
    "a value past its time": lambda redis, key: redis.set(key, signed(key, [1.0], -1)),
    "a list": lambda redis, key: redis.rpush(key, "x"),
    "a hash": lambda redis, key: redis.hset(key, "x", "y"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_was_forged_is_absent_and_the_key_works_again(cache: BaseCache, redis: Redis, name: str) -> None:
    key = cache.make_key("k")
    for use in (
        lambda: cache.get("k") is None,
        lambda: cache.add("k", True, 60) and cache.get("k") is True,
        lambda: cache.set("k", [1], 60) or cache.get("k") == [1],
        lambda: "k" not in cache,
    ):
        redis.delete(key)
        FORGED[name](redis, key)
        assert use()


@pytest.mark.parametrize("name", [name for name in FORGED if "number" not in name] + ["a huge number"])
def test_a_forged_counter_starts_over(cache: BaseCache, redis: Redis, name: str) -> None:
    key = cache.make_key("n")
    FORGED[name](redis, key)
    with pytest.raises(ValueError, match="not found"):
        cache.incr("n")
    FORGED[name](redis, key)
    assert cache.add("n", 0, 60)
    assert cache.incr("n") == 1


def test_a_counter_that_would_never_expire_starts_over(cache: BaseCache, redis: Redis) -> None:
    redis.set(cache.make_key("n"), 1_000_000)
    assert cache.add("n", 0, 60)
    redis.set(cache.make_key("n"), 1_000_000, ex=10**8)
    assert cache.add("n", 0, 60)
    assert cache.incr("n") == 1


def test_a_lock_that_someone_else_placed_does_not_hold(cache: BaseCache, redis: Redis) -> None:
    """allauth waits for such a lock before each sign-in."""
    redis.set(cache.make_key("login:lock"), "held")
    assert cache.add("login:lock", True, 10)
    assert not cache.add("login:lock", True, 10)


def test_the_product_uses_this_cache() -> None:
    assert product.CACHES["default"]["BACKEND"] == "mcpadmin.cache.SignedRedisCache"


LOADED = """
import sys, pickle
import django; django.setup()
from django.conf import settings
from django.utils.module_loading import import_string
from celery import current_app
from kombu.serialization import registry
from channels.layers import get_channel_layer
assert settings.SESSION_SERIALIZER.endswith("JSONSerializer"), settings.SESSION_SERIALIZER
assert settings.SESSION_ENGINE == "django.contrib.sessions.backends.db"
conf = current_app.conf
assert list(conf.accept_content) == ["json"] and conf.result_accept_content in (None, ["json"])
assert {conf.task_serializer, conf.result_serializer, conf.event_serializer} == {"json"}
assert type(get_channel_layer()._serializer).__name__ == "MsgPackSerializer"
assert not conf.worker_enable_remote_control and not conf.worker_send_task_events
print("fine")
"""


def test_every_setting_that_reads_a_value_reads_json_or_msgpack(tmp_path: Path) -> None:
    environment = {"MCPADMIN_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "mcpadmin.settings"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env=environment,
        capture_output=True,
        text=True,
        cwd=product.BASE_DIR,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


UNSAFE = (
    "pickle",
    "shelve",
    "marshal",
    "dill",
    "cloudpickle",
    "jsonpickle",
    "joblib",
    "unsafe_load",
    "UnsafeLoader",
    "FullLoader",
    "PersistentScheduler",
)


def test_no_module_of_ours_names_a_format_that_runs_code() -> None:
    found = []
    for app in ("mcpadmin", "servers", "sessions"):
        for path in (product.BASE_DIR / app).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if any(name in text for name in UNSAFE) else ():
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [node.attr] if isinstance(node, ast.Attribute) else []
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) == 1:
                    names.append(node.value)
                found += [f"{path.name}: {name}" for name in names if set(name.replace(".", " ").split()) & set(UNSAFE)]
    # What the worker writes into a socket pair for the process that becomes a server, or into the input of the one that
    # makes a container's mounts: no other process can write there, and loading it runs no code.
    assert set(found) == {"runner.py: marshal", "confined_start.py: marshal", "container.py: marshal"}

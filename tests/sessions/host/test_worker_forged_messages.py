"""A person who can write to Redis changes nothing and stops nothing: forged control messages, tasks and queues meet a
real worker, which lives on and still does what a genuine message asks."""

import base64
import json
import pickle
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, current_app
from django.conf import settings
from redis import Redis

from servers.enums import JobKind
from servers.models import BackgroundJob
from tests.sessions.host.conftest import ShareWorker
from tests.sessions.host.harness import WorkerProcess, eventually

pytestmark = pytest.mark.integration
PREFIX = settings.CELERY_BROKER_TRANSPORT_OPTIONS.get("global_keyprefix", "")
QUEUE = f"{PREFIX}celery"
FORGED = "6c1e9e4e-3f0a-4c3c-9b0e-000000000001"


@pytest.fixture
def redis(valkey: Path) -> Iterator[Redis]:
    with Redis(unix_socket_path=str(valkey)) as client:
        yield client


@pytest.fixture
def worker(redis: Redis, share_worker: ShareWorker) -> Iterator[WorkerProcess]:
    """Checked after each test: the same process still takes a genuine message."""
    running: WorkerProcess = share_worker()
    yield running
    assert_it_works(running)


def assert_it_works(running: WorkerProcess) -> None:
    sent = current_app.send_task("sessions.housekeeping")

    def has_run() -> bool:
        assert running.process.poll() is None, running.output[-3000:]
        return f"sessions.housekeeping[{sent.id}] succeeded" in running.output

    eventually(has_run, 60, "the worker takes no messages")
    assert running.process.poll() is None


def forged(redis: Redis, message: Any) -> None:
    redis.lpush(QUEUE, message if isinstance(message, bytes) else json.dumps(message))
    eventually(lambda: not redis.exists(QUEUE), 10, "the message was never taken")


def genuine(task: str = "sessions.housekeeping", arguments: Any = (), **headers: Any) -> dict[str, Any]:
    """A message as our own sender writes it, apart from `headers`."""
    message = current_app.amqp.as_task_v2(FORGED, task, arguments, {})
    return {
        "body": base64.b64encode(json.dumps(message.body).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": message.headers | headers,
        "properties": message.properties
        | {"delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "celery"}, "priority": 0}
        | {"body_encoding": "base64", "delivery_tag": "5d2c6c8e-0000-4000-8000-000000000001"},
    }


def without(message: dict[str, Any], *path: str) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(message))
    place = copy
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return copy


CONTROL: dict[str, dict[str, Any]] = {
    "shutdown": {},
    "cancel_consumer": {"queue": "celery"},
    "add_consumer": {"queue": "other"},
    "pool_restart": {"modules": ["this"], "reload": True},
    "pool_shrink": {"n": 4},
    "rate_limit": {"task_name": "sessions.housekeeping", "rate_limit": "1/h"},
    "time_limit": {"task_name": "sessions.housekeeping", "hard": 1, "soft": 1},
    "revoke": {"task_id": "x", "terminate": True},
}


@pytest.mark.parametrize("command", CONTROL)
def test_a_forged_control_message_stops_nothing(worker: WorkerProcess, valkey: Path, command: str) -> None:
    for prefix in ("", PREFIX):
        app = Celery(
            broker=f"redis+socket://{valkey}",
            broker_transport_options={"global_keyprefix": prefix},
            set_as_current=False,
        )
        answers = app.control.broadcast(command, arguments=CONTROL[command], reply=True, timeout=0.4)
        assert answers == []
        app.close()


def with_body(body: bytes, **envelope: str) -> dict[str, Any]:
    return genuine() | envelope | {"body": base64.b64encode(body).decode()}


PICKLE, YAML = "application/x-python-serialize", "application/x-yaml"
ODD: dict[str, Callable[[], Any]] = {
    "no JSON": lambda: b"\xff\x00not json",
    "a number": lambda: 7,
    "a list": lambda: ["task"],
    "nested without end": lambda: b"[" * 200_000,
    "no headers": lambda: without(genuine(), "headers"),
    "no body": lambda: without(genuine(), "body"),
    "no id": lambda: without(genuine(), "headers", "id"),
    "a body that is no base64": lambda: genuine() | {"body": "%%%"},
    "a body of another shape": lambda: with_body(b'{"args": 1}'),
    "a body in yaml": lambda: with_body(b"- []\n- {}\n- {}\n", **{"content-type": YAML}),
    "a compressed body": lambda: (
        with_body(zlib.compress(b"[[], {}, {}]")) | {"headers": genuine(compression="application/x-gzip")["headers"]}
    ),
    "an unknown task": lambda: genuine("os.system", ["id"]),
    "a list as task": lambda: genuine(task=["sessions.housekeeping"]),
    "a task of Celery": lambda: genuine("celery.backend_cleanup"),
    "a task of Celery with another in it": lambda: genuine("celery.starmap", [{"task": "sessions.housekeeping"}, [[]]]),
    "a job that is an object": lambda: genuine("servers.run_job", [{"uid": {"__type__": "uuid", "__value__": "x"}}]),
    "an expiry that is none": lambda: genuine(expires={"in": "time"}),
    "64 MB of nothing": lambda: b" " * 67_108_864,
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_message_in_the_queue_is_dropped(worker: WorkerProcess, redis: Redis, name: str) -> None:
    before = len(worker.output)
    forged(redis, ODD[name]())
    assert_it_works(worker)  # it came later
    assert FORGED not in worker.output[before:]


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_a_pickle_in_the_queue_is_not_read(worker: WorkerProcess, redis: Redis, tmp_path: Path) -> None:
    before, proof = len(worker.output), tmp_path / "ran"
    body = pickle.dumps(Payload(proof))
    forged(redis, body)
    forged(redis, with_body(body, **{"content-type": PICKLE, "content-encoding": "binary"}))
    forged(redis, with_body(pickle.dumps([[], {}, {}]), **{"content-type": PICKLE, "content-encoding": "binary"}))
    assert_it_works(worker)
    assert not proof.exists()
    assert FORGED not in worker.output[before:]


#: what is odd is not read, and the task runs at once
PLAIN: dict[str, Callable[[], Any]] = {
    "no properties": lambda: without(genuine(), "properties"),
    "no delivery tag": lambda: without(genuine(), "properties", "delivery_tag"),
    "no delivery info": lambda: without(genuine(), "properties", "delivery_info"),
    "said to be pickle": lambda: genuine() | {"content-type": PICKLE, "content-encoding": "binary"},
    "said to be compressed": lambda: genuine(compression="application/x-gzip"),
    "an unknown compression": lambda: genuine(compression="x-none-such"),
    "an unknown encoding": lambda: genuine() | {"content-encoding": "rot13"},
    "a time that is none": lambda: genuine(eta="never"),
    "a time in a thousand years": lambda: genuine(eta="3026-01-01T00:00:00+00:00"),
    "odd limits": lambda: genuine(timelimit=["a", {}]),
    "odd retries": lambda: genuine(retries="many", argsrepr=["x"], kwargsrepr=7, origin=[], root_id={}),
    "an answer to another queue": lambda: genuine() | {"properties": genuine()["properties"] | {"reply_to": [1]}},
    "a type that JSON revives": lambda: genuine() | {"extra": {"__type__": "os.system", "__value__": "id"}},
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_odd_beside_the_task_and_its_arguments_is_not_read(
    worker: WorkerProcess, redis: Redis, name: str
) -> None:
    before = len(worker.output)
    forged(redis, PLAIN[name]())
    said = f"sessions.housekeeping[{FORGED}] succeeded"
    eventually(lambda: said in worker.output[before:], words="the task did not run")


IDLE: dict[str, Callable[[], Any]] = {
    "arguments that do not fit": lambda: genuine(arguments=["one", "two", "three"]),
    "a job that does not exist": lambda: genuine("servers.run_job", ["6c1e9e4e-3f0a-4c3c-9b0e-0000000000ff"]),
    "a job that is no uid": lambda: genuine("servers.run_job", ["../../etc/passwd"]),
}


@pytest.mark.parametrize("name", IDLE)
def test_a_message_that_names_no_work_makes_none(worker: WorkerProcess, redis: Redis, name: str) -> None:
    before = len(worker.output)
    forged(redis, IDLE[name]())
    eventually(lambda: f"[{FORGED}] received" in worker.output[before:], words="the message was never taken")
    assert_it_works(worker)
    assert set(BackgroundJob.objects.values_list("kind", flat=True)) <= {JobKind.HOUSEKEEPING}  # of the check itself


KINDS: dict[str, Callable[[Redis, str], Any]] = {
    "string": lambda redis, key: redis.set(key, "x"),
    "set": lambda redis, key: redis.sadd(key, "x"),
    "hash": lambda redis, key: redis.hset(key, "x", "y"),
    "stream": lambda redis, key: redis.xadd(key, {"x": "y"}),
}
KEYS = ["celery", "_kombu.binding.celery", "_kombu.binding.celery.pidbox", "unacked", "unacked_index", "unacked_mutex"]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_the_wrong_type_do_not_stop_the_queue(worker: WorkerProcess, redis: Redis, kind: str) -> None:
    for key in KEYS:
        redis.delete(PREFIX + key)
        KINDS[kind](redis, PREFIX + key)


def test_poisoned_bindings_divert_no_message(worker: WorkerProcess, redis: Redis) -> None:
    redis.delete(f"{PREFIX}_kombu.binding.celery")
    redis.sadd(f"{PREFIX}_kombu.binding.celery", "celery\x06\x16\x06\x16elsewhere", "garbage")


def test_a_worker_starts_on_poisoned_keys(redis: Redis, share_worker: ShareWorker) -> None:
    for key in KEYS:
        redis.set(PREFIX + key, "garbage")
    redis.zadd(f"{PREFIX}unacked_index2", {"x": 1})
    running = share_worker(MCPADMIN_LOG_LEVEL="INFO")
    assert_it_works(running)

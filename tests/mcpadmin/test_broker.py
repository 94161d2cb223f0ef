"""A Redis that answers and refuses counts as lost: Celery connects again, where it would end the worker and its sessions."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from kombu import Connection
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from mcpadmin import broker
from mcpadmin import settings as product
from tests.tools.valkey import start, stop


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A server whose folder for saved data is gone."""
    path, saved = tmp_path_factory.mktemp("b") / "v.sock", tmp_path_factory.mktemp("saved")
    process = start(path, "--dir", str(saved))
    saved.rmdir()
    yield path
    stop(process)


@pytest.fixture
def server(address: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    monkeypatch.setattr(broker, "REFUSED_SECONDS", 0.0)
    with Redis(unix_socket_path=str(address)) as client:
        yield client
        works_again(client)


def works_again(server: Redis) -> None:
    server.replicaof("NO", "ONE")
    server.config_set("min-replicas-to-write", 0)
    server.config_set("save", "")


def becomes_a_replica(server: Redis) -> None:
    server.replicaof("127.0.0.1", "1")


def lacks_replicas(server: Redis) -> None:
    server.config_set("min-replicas-to-write", 1)


def cannot_save(server: Redis) -> None:
    """It refuses even PING then, with which a connection begins."""
    server.config_set("save", "3600 1")
    server.bgsave()
    deadline = time.monotonic() + 10
    while server.info("persistence")["rdb_last_bgsave_status"] == "ok":
        assert time.monotonic() < deadline
        time.sleep(0.02)  # no event reports the end of the attempt
    with pytest.raises(ResponseError, match="MISCONF"):
        server.ping()


def connected(address: Path, login: str = "") -> Connection:
    broker.register()
    current_app.loader.import_default_modules()  # a worker takes only tasks that it knows
    return Connection(f"mcpadmin+socket://{login}{address}", transport_options=product.CELERY_BROKER_TRANSPORT_OPTIONS)


def refused(connection: Connection) -> RedisError:
    """What a worker gets that connects and waits for a message."""
    with pytest.raises(RedisError) as raised, connection.SimpleQueue("celery", channel=connection.channel()) as queue:
        queue.get(timeout=5)
    return raised.value


@pytest.mark.parametrize("refusal", [becomes_a_replica, lacks_replicas, cannot_save])
def test_a_server_that_refuses_is_connected_to_again(
    server: Redis, address: Path, refusal: Callable[[Redis], None]
) -> None:
    refusal(server)
    with connected(address) as connection:
        assert isinstance(refused(connection), connection.connection_errors)
    works_again(server)
    with connected(address) as connection, connection.SimpleQueue("celery") as queue:
        current_app.send_task("sessions.housekeeping", producer=connection.Producer())
        message = queue.get(timeout=5)
        assert message.headers["task"] == "sessions.housekeeping"
        message.ack()


def test_a_server_that_becomes_a_replica_while_a_worker_waits_is_connected_to_again(
    server: Redis, address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = broker.QueueChannel._brpop_start

    def then_fail_over(channel: Any, timeout: float | None = None) -> None:
        begin(channel, timeout)
        becomes_a_replica(server)

    monkeypatch.setattr(broker.QueueChannel, "_brpop_start", then_fail_over)
    with connected(address) as connection:
        assert isinstance(refused(connection), connection.connection_errors)


def test_a_permission_that_is_missing_ends_the_worker_so_that_its_operator_learns_of_it(
    server: Redis, address: Path
) -> None:
    server.acl_setuser("poor", enabled=True, passwords=["+word"], keys=["*"], commands=["+@connection"])
    with connected(address, "poor:word@") as connection:
        problem = refused(connection)
        assert isinstance(problem, NoPermissionError)
        assert not isinstance(problem, connection.connection_errors)


def test_a_worker_waits_for_redis_for_as_long_as_it_takes() -> None:
    assert current_app.conf.broker_connection_max_retries is None

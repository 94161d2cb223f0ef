"""Each part has its own user at the embedded Valkey: it can do its work and nothing else."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from channels_redis.pubsub import RedisPubSubChannelLayer
from kombu import Connection
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from mcpadmin import broker
from mcpadmin import settings as product
from mcpadmin.cache import SignedRedisCache
from mcpadmin.up import valkey
from sessions.hints.group_sender import GroupSender
from sessions.live.socket_counts import SocketCounts
from tests.tools.valkey import stop

PARTS = ["web", "worker", valkey.COMMANDS]
CONFIGURATION = (product.BASE_DIR / "docs" / "configuration.md").read_text()


class Server:
    """The embedded server as `up` starts it, with one user more that reads what was refused."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.socket = directory, directory / "valkey.sock"
        self.passwords = valkey.write_users(directory)
        with (directory / valkey.USERS).open("a") as users:
            users.write("user auditor on nopass +acl|log +ping +client\n")
        self.process = subprocess.Popen(valkey.arguments(directory, self.socket), stderr=subprocess.DEVNULL)
        asyncio.run(asyncio.wait_for(valkey.answers(self.socket, self.passwords["up"]), 10))

    def url(self, user: str, database: int = 0) -> str:
        return f"unix://{user}:{self.passwords[user]}@{self.socket}?db={database}"

    def client(self, user: str) -> Redis:
        return Redis.from_url(self.url(user))

    def refused(self) -> list[Any]:
        with Redis(unix_socket_path=str(self.socket), username="auditor", password="any") as auditor:
            log: list[Any] = auditor.acl_log()
            auditor.acl_log_reset()
        return log


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("v"))
    yield running
    stop(running.process)


@pytest.fixture(autouse=True)
def _forget_refusals(server: Server) -> None:
    server.refused()


FORBIDDEN = [
    ["CONFIG", "GET", "*"],
    ["CONFIG", "SET", "dir", "/tmp"],
    ["MODULE", "LOAD", "/tmp/x.so"],
    ["DEBUG", "SLEEP", "0"],
    ["EVAL", "return 1", "0"],
    ["SCRIPT", "LOAD", "return 1"],
    ["FUNCTION", "LIST"],
    ["ACL", "LIST"],
    ["ACL", "SETUSER", "web", "+@all"],
    ["CLIENT", "LIST"],
    ["CLIENT", "KILL", "TYPE", "normal"],
    ["MONITOR"],
    ["KEYS", "*"],
    ["SCAN", "0"],
    ["FLUSHALL"],
    ["FLUSHDB"],
    ["SAVE"],
    ["BGREWRITEAOF"],
    ["REPLICAOF", "127.0.0.1", "1"],
    ["MIGRATE", "127.0.0.1", "1", "x", "0", "1"],
    ["DUMP", "mcpadmin:cache:x"],
    ["RESTORE", "mcpadmin:cache:x", "0", "x"],
    ["SHUTDOWN", "NOSAVE"],
    ["GET", "elsewhere"],
    ["SET", "elsewhere", "x"],
    ["PUBLISH", "elsewhere", "x"],
]
ONLY_SOME = {
    ("GET", "mcpadmin:cache:x"): {"web", valkey.COMMANDS},
    ("HGETALL", "mcpadmin:live-sockets:1"): {"web", valkey.COMMANDS},
    ("INCRBY", "mcpadmin:agents:token:1:1", "1"): {"web", valkey.COMMANDS},
    ("HGETALL", "mcpadmin:agents:token:1:flying"): {"web", valkey.COMMANDS},
    ("BRPOP", "mcpadmin:queue:celery", "0.01"): {"worker"},
    ("LPUSH", "mcpadmin:queue:celery", "x"): {"web", "worker", valkey.COMMANDS},
    ("LPUSH", "mcpadmin:cache:x", "x"): set(),
    ("SET", "mcpadmin:queue:celery", "x"): set(),
    ("PUBLISH", "mcpadmin__group__audit", "x"): {"web", "worker", valkey.COMMANDS},
}


@pytest.mark.parametrize("user", [*PARTS, "up"])
def test_no_user_administers_the_server_or_touches_keys_of_others(server: Server, user: str) -> None:
    with server.client(user) as client:
        assert client.ping()
        for command in FORBIDDEN:
            with pytest.raises((NoPermissionError, ResponseError), match=r"(?i)no permissions|not allowed"):
                client.execute_command(*command)


@pytest.mark.parametrize("command", ONLY_SOME, ids=" ".join)
def test_each_command_is_for_the_parts_that_need_it(server: Server, command: tuple[str, ...]) -> None:
    allowed = set()
    for user in PARTS:
        with server.client(user) as client:
            try:
                client.execute_command(*command)
            except NoPermissionError:
                continue
            allowed.add(user)
    assert allowed == ONLY_SOME[command]


def test_without_a_password_the_socket_is_worth_nothing(server: Server) -> None:
    assert server.socket.stat().st_mode & 0o777 == 0o600
    for url in (f"unix://{server.socket}", f"unix://default:x@{server.socket}", f"unix://web:wrong@{server.socket}"):
        with Redis.from_url(url) as client, pytest.raises(AuthenticationError):
            client.ping()


def test_passwords_are_new_at_each_start_and_are_in_clear_nowhere_but_for_commands(tmp_path: Path) -> None:
    first, second = valkey.write_users(tmp_path), valkey.write_users(tmp_path)
    assert all(len(password) == 64 for password in first.values())
    assert not set(first.values()) & set(second.values())
    files = {path.name: path for path in tmp_path.iterdir()}
    assert {name: path.stat().st_mode & 0o777 for name, path in files.items()} == {"users.acl": 0o600, "login": 0o600}
    assert not any(password in files["users.acl"].read_text() for password in second.values())
    assert valkey.login_of_commands(tmp_path) == f"{valkey.COMMANDS}:{second[valkey.COMMANDS]}"


@pytest.mark.parametrize("user", ["web", valkey.COMMANDS])
def test_the_web_has_all_that_it_needs(server: Server, settings: Any, user: str) -> None:
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [server.url(user, 1)], "prefix": valkey.LAYER},
        }
    }
    cache = SignedRedisCache(server.url(user, 2), {"KEY_PREFIX": valkey.CACHE})
    cache.delete("n")
    assert cache.add("n", 0, 60)
    assert not cache.add("n", 0, 60)
    assert cache.incr("n") == 1
    cache.set("k", [1], 60)
    assert cache.get("k") == [1]
    GroupSender().send([("audit", {"hints": []})])
    asyncio.run(hears_itself(server, user))
    counts = SocketCounts()
    counts.write("mcpadminlistener.none", {1: 2})
    assert counts.elsewhere(1, "other") == 0  # the process is gone, so its numbers are removed
    counts.write("other", {1: 0})
    put(server, user)
    assert server.refused() == []


async def hears_itself(server: Server, user: str) -> None:
    layer = RedisPubSubChannelLayer(hosts=[server.url(user, 1)], prefix=valkey.LAYER)
    channel = await layer.new_channel("listener.")
    await layer.group_add("worker.x", channel)
    await layer.group_send("worker.x", {"hello": 1})
    assert await asyncio.wait_for(layer.receive(channel), 5) == {"hello": 1}
    await layer.flush()


def connected(server: Server, user: str) -> Connection:
    broker.register()
    url = f"mcpadmin+socket://{user}:{server.passwords[user]}@{server.socket}"
    return Connection(url, transport_options=product.CELERY_BROKER_TRANSPORT_OPTIONS)


def put(server: Server, user: str) -> None:
    with connected(server, user) as connection, connection.Producer() as producer:
        current_app.send_task("sessions.housekeeping", producer=producer)


def test_workers_have_all_that_they_need(server: Server) -> None:
    """One of them runs beat."""
    put(server, "worker")
    asyncio.run(hears_itself(server, "worker"))
    current_app.loader.import_default_modules()  # a worker takes only tasks that it knows
    with connected(server, "worker") as connection, connection.SimpleQueue("celery") as queue:
        message = queue.get(timeout=5)
        assert message.headers["task"] == "sessions.housekeeping"
        message.ack()
    assert server.refused() == []


def test_the_documented_rules_for_a_redis_of_the_operator_are_ours() -> None:
    for role in ("web", "worker"):
        assert f"user mcpadmin-{role} on >PASSWORD {valkey.RULES[role]}\n" in CONFIGURATION

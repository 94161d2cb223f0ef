"""The whole product keeps its secrets from other processes, and what was poisoned in its Redis heals at its start."""

import ast
import json
import re
import time
from base64 import b64encode
from collections.abc import Callable

import pytest
from redis import Redis
from redis.exceptions import RedisError

from mcpadmin.up import valkey
from tests.tools.stack import ROOT, Stack
from tests.tools.valkey import start, stop

MakeStack = Callable[..., Stack]
pytestmark = [pytest.mark.up, pytest.mark.integration]
KEY = b64encode(b"canary-keyring-0123456789abcdef!").decode()
RING = json.dumps({"current": "k1", "keys": {"k1": KEY}})


def test_no_secret_is_in_the_environment_or_the_command_line_of_any_process(make_stack: MakeStack) -> None:
    secrets = {
        "MCPADMIN_SECRET_KEY": "canary-secret-key-0123456789-0123456789-0123456789",
        "MCPADMIN_KEYRING": RING,
        "MCP_TOKEN": "canary-reference",
    }
    product = make_stack(env=secrets, administrator=True).start()
    login = valkey.login_of_commands(product.data_dir / "valkey").partition(":")[2]
    assert len(login) == 64
    looked_at = set()
    for process in product.family():
        shown = " ".join(process.cmdline()) + json.dumps(process.environ())
        assert not [word for word in ("canary", KEY, login) if word in shown], process.cmdline()
        looked_at |= {word for word in ("manage.py up", "daphne", "mcpadmin.worker", "valkey-server") if word in shown}
    assert len(looked_at) == 4
    # The parts know them nevertheless: the web signs with the key, the worker opens with the ring.
    assert product.manage("rotate_keys", "--check")
    loose = [
        path for path in product.data_dir.rglob("*") if path.lstat().st_mode & 0o077 and "static" not in path.parts
    ]
    assert loose == []


@pytest.mark.parametrize("entry", ["manage.py", "mcpadmin/asgi.py", "mcpadmin/worker.py"])
def test_each_process_is_hardened_before_it_does_anything_else(entry: str) -> None:
    tree = ast.parse((ROOT / entry).read_text())
    body = tree.body
    if entry == "manage.py":
        body = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "main").body
    steps = [
        ast.unparse(node) for node in body if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant)
    ]
    before = steps[: steps.index("hardening.harden()")]
    assert set(before) <= {
        "import os",
        "import sys",
        "from argparse import ArgumentParser",
        "from importlib import import_module",
        "from typing import Any",
        "from mcpadmin import hardening",
    }


def poison(product: Stack) -> None:
    """As someone would who could write to the server's files: every name that we use is something else."""
    directory = product.data_dir / "valkey"
    server = start(directory / "v.sock", "--dir", str(directory), "--appendonly", "yes")
    try:
        for database in range(3):
            with Redis(unix_socket_path=str(directory / "v.sock"), db=database) as client:
                for name in ("celery", "_kombu.binding.celery", "unacked", "unacked_index", "unacked_mutex"):
                    client.set(f"{valkey.QUEUE}{name}", "garbage")
                for user in range(5):
                    client.rpush(f"{valkey.LAYER}:live-sockets:{user}", "garbage")
        stop(server)
    finally:
        if server.poll() is None:
            server.kill()
    (directory / "v.sock").unlink(missing_ok=True)


def kept_house(product: Stack) -> bool:
    return bool(product.rows("SELECT 1 FROM servers_backgroundjob WHERE kind = 'housekeeping' AND state = 'succeeded'"))


def request_housekeeping(product: Stack) -> None:
    product.shell("from celery import current_app; current_app.send_task('sessions.housekeeping')")
    deadline = time.monotonic() + 10
    while not kept_house(product):
        assert time.monotonic() < deadline, product.output[-3000:]
        time.sleep(0.05)


@pytest.mark.long
def test_after_a_start_on_poisoned_data_the_queue_works(make_stack: MakeStack) -> None:
    product = make_stack(administrator=True)
    (product.data_dir / "valkey").mkdir(mode=0o700)
    poison(product)
    product.start()
    request_housekeeping(product)
    assert not re.search(r"(web|worker) (exited|killed)", product.output)


@pytest.mark.long
def test_data_that_valkey_cannot_load_is_set_aside(make_stack: MakeStack) -> None:
    product = make_stack(administrator=True)
    saved = product.data_dir / "valkey" / "appendonlydir"
    saved.mkdir(parents=True, mode=0o700)
    (saved / "appendonly.aof.manifest").write_text("garbage\n")
    product.start()
    assert "valkey starts without its saved data" in product.output
    assert (saved.with_name("appendonlydir.damaged") / "appendonly.aof.manifest").read_text() == "garbage\n"


@pytest.mark.long
def test_the_socket_of_the_running_product_needs_a_password(stack: Stack) -> None:
    path = stack.data_dir / "valkey" / "valkey.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    with Redis(unix_socket_path=str(path)) as client, pytest.raises(RedisError):
        client.ping()
    with Redis.from_url(f"unix://{valkey.login_of_commands(path.parent)}@{path}") as client:
        assert client.ping()
        for command in (["CONFIG", "GET", "*"], ["FLUSHALL"], ["KEYS", "*"]):
            with pytest.raises(RedisError):
                client.execute_command(*command)

"""The whole product on PostgreSQL and on a Redis that is not ours: register, call through the socket, verify."""

import asyncio
import json
import time
from collections.abc import Iterator

import pytest

from tests.e2e.sockets import Visitor, a_call, greeted
from tests.peers.peers import peer_command
from tests.tools import valkey
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.postgres]
SETTLED_SECONDS = 20.0


@pytest.fixture
def redis_url(tmp_path_factory) -> Iterator[str]:
    """A server with a password, reached over TCP as a user's own would be."""
    with valkey.over_tcp(tmp_path_factory.mktemp("redis"), "pass-phrase-of-redis") as url:
        yield url


@pytest.fixture
def product(make_stack, postgres_url, redis_url) -> Stack:
    stack = make_stack(env={"DATABASE_URL": postgres_url, "REDIS_URL": redis_url}).start()
    stack.create_admin()
    return stack


def states(stack: Stack) -> dict[str, str]:
    """The session's state, the calls' states, by one look through the product's own models."""
    code = (
        "import json; from sessions.models import Call, McpSession; from servers.models import Server;"
        "print(json.dumps({'session': list(McpSession.objects.values_list('state', flat=True)),"
        "'calls': list(Call.objects.order_by('id').values_list('state', flat=True)),"
        "'server': [str(uid) for uid in Server.objects.values_list('uid', flat=True)]}))"
    )
    return json.loads(stack.shell(code).splitlines()[-1])


def await_ready(stack: Stack) -> str:
    deadline = time.monotonic() + SETTLED_SECONDS
    while (found := states(stack))["session"] != ["ready"]:
        assert time.monotonic() < deadline, f"{found}\n{stack.output[-3000:]}"
    return found["server"][0]


async def echoes(stack: Stack, server: str) -> list[dict]:
    visitor = await asyncio.to_thread(Visitor, stack)
    async with greeted(stack, visitor) as socket:
        return [await a_call(socket, server, "greet", {"name": f"number {ref}"}, ref) for ref in range(5)]


def test_a_call_through_the_socket_is_kept_and_verified_on_postgresql_and_a_foreign_redis(product) -> None:
    command, arguments = peer_command("demo")
    product.manage("register_server", "--user", ADMIN[0], "--name", "Demo", "--", command, *arguments)
    server = await_ready(product)
    finals = asyncio.run(echoes(product, server))
    assert [final["state"] for final in finals] == ["succeeded"] * 5
    assert states(product)["calls"] == ["succeeded"] * 5
    assert "chain holds" in product.manage("verify_audit")
    assert not (product.data_dir / "mcpadmin.sqlite3").exists()
    assert product.part("valkey") == []

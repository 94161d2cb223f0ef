"""The whole product works on PostgreSQL and an external Redis: register, call through the socket, verify."""

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.e2e.sockets import Visitor, a_call, greeted
from tests.peers.peers import peer_command
from tests.tools import valkey
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.postgres]
READY_SECONDS = 20.0


@pytest.fixture
def redis_url(tmp_path_factory) -> Iterator[str]:
    """A server with a password, reached over TCP like a user's external one."""
    with valkey.over_tcp(tmp_path_factory.mktemp("redis"), "pass-phrase-of-redis") as url:
        yield url


@pytest.fixture
def product(postgres_database, redis_url, make_stack) -> Stack:
    stack = make_stack(env={"DATABASE_URL": postgres_database, "REDIS_URL": redis_url}).start()
    stack.create_admin()
    return stack


def ready_server(database: psycopg.Connection, stack: Stack) -> str:
    """The uid of the only server, once its session is ready and its tools are listed."""
    query = (
        "SELECT v.uid FROM servers_server v JOIN mcp_sessions_mcpsession s ON s.server_id = v.id "
        "WHERE s.state = 'ready' AND EXISTS (SELECT 1 FROM servers_definition d WHERE d.server_id = v.id)"
    )
    deadline = time.monotonic() + READY_SECONDS
    while (found := database.execute(query).fetchone()) is None:
        assert time.monotonic() < deadline, stack.output[-3000:]
        time.sleep(0.1)  # no event reports rows of another process
    return str(found[0])


async def echoes(stack: Stack, server: str) -> list[dict]:
    visitor = await asyncio.to_thread(Visitor, stack)
    async with greeted(stack, visitor) as socket:
        return [await a_call(socket, server, "greet", {"name": f"number {ref}"}, ref) for ref in range(5)]


def test_calls_through_the_socket_are_kept_and_verified_on_postgresql_and_a_foreign_redis(
    product, postgres_database
) -> None:
    command, arguments = peer_command("demo")
    product.manage("register_server", "--user", ADMIN[0], "--name", "Demo", "--", command, *arguments)
    with psycopg.connect(postgres_database, autocommit=True) as database:
        server = ready_server(database, product)
        finals = asyncio.run(echoes(product, server))
        states = database.execute("SELECT state, count(*) FROM mcp_sessions_call GROUP BY state").fetchall()
    assert [final["state"] for final in finals] == ["succeeded"] * 5
    assert states == [("succeeded", 5)]
    assert "No tampering found" in product.manage("verify_audit")
    assert not (product.data_dir / "mcpadmin.sqlite3").exists()
    assert product.part("valkey-server") == []

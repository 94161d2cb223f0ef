"""Two web processes share one socket: pages on one see what happens on the other, and either may die."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psutil
import pytest
import websockets

from tests.e2e.sockets import Visitor, answer, greeted
from tests.tools.stack import ADMIN, ROOT, Stack, started_stack

pytestmark = [pytest.mark.up, pytest.mark.slow, pytest.mark.integration]
DEMO = ROOT / "mcpadmin" / "demo_server"


@pytest.fixture(scope="module")
def product() -> Iterator[Stack]:
    """Limits a person to two sockets."""
    environment = {"MCPADMIN_SOCKETS_PER_USER": "2"}
    with started_stack("--port", "0", "--web-processes", "2", administrator=True, env=environment) as made:
        made.manage("register_server", "--user", ADMIN[0], "--name", "Demo", "--", sys.executable, str(DEMO))
        deadline = time.monotonic() + 90
        while not made.rows("SELECT 1 FROM servers_definition WHERE key = 'greet'"):
            assert time.monotonic() < deadline, made.output[-3000:]
            time.sleep(0.2)  # no event reports rows of another process
        yield made


@contextmanager
def only(product: Stack, number: int) -> Iterator[int]:
    """Stop the other web process, so that the one with this number accepts all new connections."""
    webs = sorted(process.pid for process in product.part("daphne"))
    assert len(webs) == 2
    other = webs[1 - number]
    os.kill(other, signal.SIGSTOP)
    try:
        yield webs[number]
    finally:
        os.kill(other, signal.SIGCONT)


def owns_connection(pid: int, port: int) -> bool:
    """Whether this process owns the connection from that client port."""
    return any(found.raddr and found.raddr.port == port for found in psutil.Process(pid).net_connections("tcp"))


def registered(product: Stack) -> tuple[str, UUID]:
    (row,) = product.rows("SELECT slug, uid FROM servers_server")
    return row["slug"], UUID(row["uid"])


async def test_a_page_at_one_process_sees_a_call_that_was_posted_to_the_other(product: Stack) -> None:
    slug, uid = registered(product)
    with only(product, 0) as first:
        watching = await asyncio.to_thread(Visitor, product)
        socket_at_first = greeted(product, watching)
        socket = await socket_at_first.__aenter__()
    assert owns_connection(first, socket.local_address[1])
    with only(product, 1):
        posting = await asyncio.to_thread(Visitor, product)
    await socket.send(f'{{"op": "sub", "topics": {{"server.{uid}": null}}}}')
    await answer(socket, lambda frame: frame.get("op") == "synced")
    given = await asyncio.to_thread(
        posting.post, f"/servers/{slug}/call/?tool=greet", {"_mode": "json", "_json": '{"name": "Ada"}'}
    )
    assert given.status_code in {200, 302, 303}, given.text[:2000]
    seen = await answer(socket, lambda frame: any(row.get("state") == "succeeded" for row in frame.get("rows") or []))
    assert seen["t"] == f"server.{uid}"
    await socket_at_first.__aexit__(None, None, None)
    watching.close()
    posting.close()


async def test_a_ticket_of_one_process_is_good_once_at_the_other(product: Stack) -> None:
    with only(product, 0):
        visitor = await asyncio.to_thread(Visitor, product)
        ticket = await asyncio.to_thread(visitor.ticket)
    with only(product, 1):
        assert await hello(product, visitor, ticket) == "welcome"
    with only(product, 0):
        assert await hello(product, visitor, ticket) == 4401
    visitor.close()


async def hello(product: Stack, visitor: Visitor, ticket: str) -> str | int:
    """Return "welcome", or the close code of the socket."""
    url = product.base_url.replace("http", "ws") + "/ws/"
    headers = {"Cookie": visitor.cookie_header}
    async with websockets.connect(url, origin=product.base_url, additional_headers=headers) as socket:
        await socket.send(f'{{"op": "hello", "ticket": "{ticket}", "v": 1}}')
        try:
            await answer(socket, lambda frame: frame.get("op") == "welcome")
        except (AssertionError, websockets.ConnectionClosed):
            return socket.close_code or 0
        return "welcome"


async def test_one_may_be_killed_while_the_other_serves_and_its_pages_come_back(product: Stack) -> None:
    with only(product, 0) as first:
        visitor = await asyncio.to_thread(Visitor, product)
        lost_context = greeted(product, visitor)
        lost = await lost_context.__aenter__()
    with only(product, 1):
        elsewhere = await asyncio.to_thread(Visitor, product)
        kept_context = greeted(product, elsewhere)
        await kept_context.__aenter__()
    third = await asyncio.to_thread(elsewhere.ticket)
    assert await hello(product, elsewhere, third) == 4030  # one socket at each process makes two
    seen = len(product.lines)
    os.kill(first, signal.SIGKILL)
    await lost.wait_closed()
    assert {(await asyncio.to_thread(elsewhere.get, "/healthz")).status_code for _ in range(20)} == {200}
    async with greeted(product, elsewhere):  # sockets of the dead process do not count
        pass
    named = product.wait_for(re.compile(r"(web[12]) ready again in"), seconds=90, since=seen)
    assert f"{named[1]} killed by SIGKILL; restarting it in" in product.output
    assert product.output.count("mcpadmin is ready after") == 1
    await kept_context.__aexit__(None, None, None)
    visitor.close()
    elsewhere.close()

"""The client pings the server of an idle modern session, and gives up a connection that no longer answers."""

import asyncio

import pytest

from sessions.mcp.core.errors import Fault
from sessions.mcp.core.events import StateChanged
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.state import State
from tests.peers.proxied import proxied
from tests.sessions.mcp.transports.http_answers import OK
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Script, legacy, scripted_http

from .feeds import Feeds, feeding
from .waiting import until

pytestmark = pytest.mark.integration


async def test_an_idle_modern_session_whose_connection_leads_nowhere_is_given_up() -> None:
    quick = Timeouts(keepalive_idle=0.2, keepalive_answer=0.3, keepalive_misses=2)
    async with feeding(Feeds()) as url:
        port, path = url.removeprefix("http://127.0.0.1:").split("/", 1)
        with proxied("127.0.0.1", int(port)) as proxy:
            async with connected(http(f"{proxy.url}/{path}"), timeouts=quick) as made:
                proxy.black_hole()
                async with asyncio.timeout(20):
                    reason = await made.client.closed
    assert reason is not None
    assert reason.fault is Fault.CONNECTION_LOST
    assert "did not answer 2 pings" in reason.detail


async def test_a_modern_server_that_answers_stays_through_many_silences_and_is_asked_in_each() -> None:
    feeds = Feeds()
    quick = Timeouts(keepalive_idle=0.05, keepalive_answer=10)
    async with feeding(feeds) as url, connected(http(url), timeouts=quick) as made:
        await until(lambda: feeds.discovered > 4)
        assert made.client.state is State.READY
        assert [event.new for event in made.of(StateChanged)][-1] is State.READY


def pinged(answer: Script) -> Script:
    """A legacy server with a session, where the test answers pings."""
    inner = legacy(lambda asked, line: line.result(asked, OK), session="s")

    async def script(asked: Asked, line: Line) -> None:
        await (answer if asked.method == "ping" else inner)(asked, line)

    return script


async def test_a_session_whose_pings_are_refused_by_http_status_is_given_up() -> None:
    """A server that restarted without its sessions, and says so in words that nobody recognises."""

    async def refuse(asked: Asked, line: Line) -> None:
        error = {"code": -32000, "message": "Bad Request: Server not initialized"}
        await line.json({"jsonrpc": "2.0", "id": None, "error": error}, 400)

    quick = Timeouts(keepalive_idle=0.05, keepalive_misses=2)
    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url), timeouts=quick) as made:
        async with asyncio.timeout(20):
            reason = await made.client.closed
        assert peer.count("ping") == 2
    assert reason is not None
    assert (reason.fault, reason.detail) == (Fault.RPC_ERROR, "Bad Request: Server not initialized")


async def test_an_idle_session_that_the_server_forgot_is_renewed_by_the_ping() -> None:
    async def refuse_once(asked: Asked, line: Line) -> None:
        if len(pings) == 0:
            pings.append(asked)
            await line.reply(400, b"Bad Request: No valid session ID provided", "text/plain")
        else:
            await line.result(asked, {})

    pings: list[Asked] = []
    quick = Timeouts(keepalive_idle=0.05)
    async with scripted_http(pinged(refuse_once)) as peer, connected(http(peer.url), timeouts=quick) as made:
        await until(lambda: peer.count("ping") > 2)
        assert peer.count("initialize") == 2
        assert made.client.state is State.READY


@pytest.mark.parametrize("status", [200, 400])
async def test_a_server_that_does_not_know_ping_is_alive(status: int) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.error(asked, -32601, status)

    quick = Timeouts(keepalive_idle=0.05, keepalive_misses=1)
    async with scripted_http(pinged(refuse)) as peer, connected(http(peer.url), timeouts=quick) as made:
        await until(lambda: peer.count("ping") > 2)
        assert made.client.state is State.READY

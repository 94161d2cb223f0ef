"""The client pings the server of an idle modern session, and gives up a connection that no longer answers."""

import asyncio

import pytest

from sessions.mcp.core.errors import Fault
from sessions.mcp.core.events import StateChanged
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.state import State
from tests.peers.proxied import proxied
from tests.sessions.mcp.transports.making import connected, http

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

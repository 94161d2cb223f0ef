"""Each log message of a server is tagged with the request that it belongs to, if that can be known."""

import asyncio
import sys
from pathlib import Path

import pytest

from sessions.mcp.core.events import LogMessage
from sessions.mcp.transports.registry import StdioSpec
from tests.peers.peers import run_peer
from tests.sessions.mcp.client.waiting import until
from tests.sessions.mcp.transports.making import FlowSecrets, connected, http

pytestmark = pytest.mark.integration
SHELF = StdioSpec(sys.executable, (str(Path(__file__).parents[2] / "host" / "shelf_server.py"),))


def tags(made: FlowSecrets) -> list[object]:
    return [event.tag for event in made.of(LogMessage)]


def ignore(*progress: object) -> None:
    """A progress handler, so that the client asks for progress."""


async def test_on_one_stream_for_all_a_message_belongs_to_the_only_call_that_it_can_be_about() -> None:
    async with connected(SHELF, era="legacy") as made:
        await made.client.call_tool("count", {"to": 2}, tag="first", on_progress=ignore)
        assert tags(made) == ["first", "first"]
        both = [made.client.call_tool("count", {"to": 3}, tag=tag, on_progress=ignore) for tag in "ab"]
        await asyncio.gather(*both)
        assert tags(made)[2] is None, "two calls run: nobody can tell"


async def test_over_http_a_message_belongs_to_the_call_on_whose_stream_it_came() -> None:
    with run_peer("sdk1", "http") as url:
        async with connected(http(url), era="legacy") as made:
            calls = {tag: made.client.call_tool("log", {"text": f"of {tag}"}, tag=tag) for tag in ("one", "two")}
            await asyncio.gather(*calls.values())
            await until(lambda: len(made.of(LogMessage)) == 2)
            assert {event.data: event.tag for event in made.of(LogMessage)} == {"of one": "one", "of two": "two"}

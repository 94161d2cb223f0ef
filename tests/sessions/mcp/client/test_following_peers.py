"""Subscriptions, list changes and log levels against real servers of both eras."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sessions.mcp.client import listening
from sessions.mcp.core.events import Following, FollowingLost, ListChanged, ListKind, LogMessage, ResourceUpdated
from sessions.mcp.transports.registry import Spec, StdioSpec
from tests.peers.peers import peer_command, peer_python, run_peer
from tests.sessions.mcp.transports.making import connected, http

from .test_following_modern import listen_tasks
from .waiting import PATIENCE, until

pytestmark = pytest.mark.integration

FEEDS = Path(__file__).parent / "servers" / "sdk2_feeds.py"
ONE, TWO = "note://one", "note://two"
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])


@asynccontextmanager
async def modern(transport: str) -> AsyncIterator[Spec]:
    """A server on the official SDK 2.x."""
    python = str(peer_python("sdk2"))
    if transport == "stdio":
        yield StdioSpec(python, (str(FEEDS), "stdio"))
        return
    process = await asyncio.create_subprocess_exec(python, str(FEEDS), "http", stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            url = (await process.stderr.readline()).decode().strip()
        yield http(url)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def everything(transport: str) -> AsyncIterator[Spec]:
    if transport == "stdio":
        command, args = peer_command("everything", "stdio")
        yield StdioSpec(command, tuple(args))
    else:
        with run_peer("everything", "http") as url:
            yield http(url)


@TRANSPORTS
async def test_a_modern_server_tells_what_it_agreed_to_and_nothing_else(transport: str) -> None:
    async with modern(transport) as spec, connected(spec) as made:
        honoured = await made.client.follow([ONE], [ListKind.TOOLS])
        assert (honoured.resources, honoured.lists, honoured.refused) == ({ONE}, {ListKind.TOOLS}, {})
        await made.client.call_tool("change", {"uri": TWO})
        await made.client.call_tool("grow", {})
        await made.client.call_tool("change", {"uri": ONE})
        await until(lambda: made.of(ResourceUpdated))
        assert made.of(ResourceUpdated) == [ResourceUpdated(ONE)]
        assert made.of(ListChanged) == [ListChanged(ListKind.TOOLS)]


@TRANSPORTS
async def test_a_modern_set_is_replaced_and_the_old_one_is_silent(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_OVERLAP", 0.0)
    async with modern(transport) as spec, connected(spec) as made:
        await made.client.follow([ONE])
        await made.client.follow([TWO])
        await until(lambda: len(listen_tasks()) == 1)
        await made.client.call_tool("change", {"uri": ONE})
        await made.client.call_tool("change", {"uri": TWO})
        await until(lambda: made.of(ResourceUpdated))
        assert made.of(ResourceUpdated) == [ResourceUpdated(TWO)]


@TRANSPORTS
async def test_a_modern_server_that_ends_its_streams_is_listened_to_again(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening.Backoff, "delay", lambda self, retry_after=None: 0.0)
    async with modern(transport) as spec, connected(spec) as made:
        await made.client.follow([ONE], [ListKind.TOOLS])
        await made.client.call_tool("end_subscriptions", {})
        await until(lambda: len(made.of(Following)) == 2)
        assert len(made.of(FollowingLost)) == 1
        await made.client.call_tool("change", {"uri": ONE})
        await until(lambda: made.of(ResourceUpdated))


@TRANSPORTS
async def test_a_legacy_server_tells_about_the_resources_that_were_subscribed_to(transport: str) -> None:
    async with everything(transport) as spec, connected(spec) as made:
        uris = [resource["uri"] for resource in (await made.client.list_resources()).items][:2]
        await made.client.follow(uris)
        honoured = await made.client.follow(uris[:1], [ListKind.TOOLS])
        assert (honoured.resources, honoured.lists, honoured.refused) == ({uris[0]}, {ListKind.TOOLS}, {})
        await made.client.call_tool("toggle-subscriber-updates", {})
        await until(lambda: made.of(ResourceUpdated))
        assert {event.uri for event in made.of(ResourceUpdated)} == {uris[0]}


@TRANSPORTS
async def test_a_legacy_server_logs_no_less_severe_than_asked(transport: str) -> None:
    """This server logs each subscribe request at level info."""
    async with everything(transport) as spec, connected(spec) as made:
        await made.client.set_log_level("debug")
        await made.client.follow(["demo://resource/dynamic/text/1"])
        await until(lambda: made.of(LogMessage))
        await made.client.set_log_level("emergency")
        before = len(made.of(LogMessage))
        await made.client.follow([])
        await made.client.follow(["demo://resource/dynamic/text/1"])
        await made.client.ping()
        assert len(made.of(LogMessage)) == before

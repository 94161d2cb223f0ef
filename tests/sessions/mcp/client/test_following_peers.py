"""Subscriptions, list changes and log levels against real servers of both eras."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.mcp.client import listening
from sessions.mcp.core.events import Following, FollowingLost, ListChanged, ListKind, LogMessage, ResourceUpdated
from sessions.mcp.transports.registry import Spec, StdioSpec
from tests.peers.peers import peer_command, peer_python, run_peer
from tests.sessions.mcp.transports.making import connected, http

from .test_following_modern import listen_tasks
from .test_tasks_of_sdks import announced
from .waiting import until

pytestmark = pytest.mark.integration

FEEDS = Path(__file__).parent / "servers" / "sdk2_feeds.py"
ONE, TWO = "note://one", "note://two"
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])


def feeds(transport: str) -> StdioSpec:
    """A server on the official SDK 2.x."""
    return StdioSpec(str(peer_python("sdk2")), (str(FEEDS), transport))


@pytest.fixture(scope="module")
def modern_url() -> Iterator[str]:
    with announced(feeds("http")) as url:
        yield url


@pytest.fixture(scope="module")
def everything_url() -> Iterator[str]:
    with run_peer("everything", "http") as url:
        yield url


@pytest.fixture
def modern(transport: str, request: pytest.FixtureRequest) -> Spec:
    return feeds("stdio") if transport == "stdio" else http(request.getfixturevalue("modern_url"))


@pytest.fixture
def everything(transport: str, request: pytest.FixtureRequest) -> Spec:
    if transport == "http":
        return http(request.getfixturevalue("everything_url"))
    command, args = peer_command("everything", "stdio")
    return StdioSpec(command, tuple(args))


@TRANSPORTS
async def test_a_modern_server_tells_what_it_agreed_to_and_nothing_else(modern: Spec) -> None:
    async with connected(modern) as made:
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
    modern: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_OVERLAP", 0.0)
    async with connected(modern) as made:
        await made.client.follow([ONE])
        await made.client.follow([TWO])
        await until(lambda: len(listen_tasks()) == 1)
        await made.client.call_tool("change", {"uri": ONE})
        await made.client.call_tool("change", {"uri": TWO})
        await until(lambda: made.of(ResourceUpdated))
        assert made.of(ResourceUpdated) == [ResourceUpdated(TWO)]


@TRANSPORTS
async def test_a_modern_server_that_ends_its_streams_is_listened_to_again(
    modern: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening.Backoff, "delay", lambda self, retry_after=None: 0.0)
    async with connected(modern) as made:
        await made.client.follow([ONE], [ListKind.TOOLS])
        await made.client.call_tool("end_subscriptions", {})
        await until(lambda: len(made.of(Following)) == 2)
        assert len(made.of(FollowingLost)) == 1
        await made.client.call_tool("change", {"uri": ONE})
        await until(lambda: made.of(ResourceUpdated))


@TRANSPORTS
async def test_a_legacy_server_tells_about_the_resources_that_were_subscribed_to(everything: Spec) -> None:
    async with connected(everything) as made:
        uris = [resource["uri"] for resource in (await made.client.list_resources()).items][:2]
        await made.client.follow(uris)
        honoured = await made.client.follow(uris[:1], [ListKind.TOOLS])
        assert (honoured.resources, honoured.lists, honoured.refused) == ({uris[0]}, {ListKind.TOOLS}, {})
        await made.client.call_tool("toggle-subscriber-updates", {})
        await until(lambda: made.of(ResourceUpdated))
        assert {event.uri for event in made.of(ResourceUpdated)} == {uris[0]}


@TRANSPORTS
async def test_a_legacy_server_logs_no_less_severe_than_asked(everything: Spec) -> None:
    """This server logs each subscribe request at level info."""
    async with connected(everything) as made:
        await made.client.set_log_level("debug")
        await made.client.follow(["demo://resource/dynamic/text/1"])
        await until(lambda: made.of(LogMessage))
        await made.client.set_log_level("emergency")
        before = len(made.of(LogMessage))
        await made.client.follow([])
        await made.client.follow(["demo://resource/dynamic/text/1"])
        await made.client.ping()
        assert len(made.of(LogMessage)) == before

"""Subscriptions and log levels of a legacy session send only differences, name refusals, and are restored after a
renewal."""

import asyncio
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, InvalidRequest, McpError
from sessions.mcp.core.events import Following, FollowingLost, ListKind, LogMessage, ResourceUpdated
from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports.streamable_http import listener, wire
from sessions.mcp.transports.streamable_http.wire import Cursor
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import INITIALIZED, Asked, Line, Peer, scripted_http

from .waiting import until

pytestmark = pytest.mark.integration

A, B, C, NO = "note://a", "note://b", "note://c", "note://no"
FEEDS: dict[str, Any] = {"resources": {"subscribe": True}, "tools": {"listChanged": True}, "logging": {}}


@dataclass
class Sessions:
    """A legacy server with wire sessions. It refuses the URI note://no, and delays each subscribe request while
    `gate` is closed."""

    capabilities: dict[str, Any] = field(default_factory=lambda: FEEDS)
    held: set[str] = field(default_factory=set)
    level: str = ""
    opened: int = 0
    most_at_once: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    #: the GET streams opened so far; None if the server has no GET stream
    streams: asyncio.Queue[Line] | None = field(default_factory=asyncio.Queue)
    #: the statuses that refuse the next requests for a GET stream
    refusals: list[int] = field(default_factory=list)
    _at_once: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    async def stream(self) -> Line:
        """The client's next GET stream."""
        assert self.streams is not None
        return await asyncio.wait_for(self.streams.get(), 30)

    def forget(self) -> None:
        """Invalidate all session ids, as a restart does."""
        self.opened += 1
        self.held.clear()
        self.level = ""

    async def script(self, asked: Asked, line: Line) -> None:
        if asked.verb == "GET" and self.refusals:
            await line.reply(self.refusals.pop(0), kind="")
        elif asked.verb == "GET" and self.streams is not None:
            await line.stream()
            self.streams.put_nowait(line)
            await line.hang()
        elif asked.verb != "POST":
            await line.reply(405 if asked.verb == "GET" else 204, kind="")
        elif asked.method == "initialize":
            self.opened += 1
            result = {**INITIALIZED, "capabilities": self.capabilities}
            await line.result(asked, result, Mcp_Session_Id=f"s{self.opened}")
        elif asked.method == "server/discover":
            await line.error(asked, -32601, 400)
        elif asked.headers.get("mcp-session-id") != f"s{self.opened}":
            await line.reply(404, kind="")
        elif asked.id is None:
            await line.reply(202, kind="")
        else:
            await self._answer(asked, line)

    async def _answer(self, asked: Asked, line: Line) -> None:
        params = asked.message.get("params", {})
        if asked.method == "resources/subscribe":
            await self._subscribe(asked, params["uri"], line)
            return
        if asked.method == "resources/unsubscribe":
            self.held.discard(params["uri"])
        elif asked.method == "logging/setLevel":
            self.level = params["level"]
        await line.result(asked, {})

    async def _subscribe(self, asked: Asked, uri: str, line: Line) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await self.gate.wait()
        self._at_once -= 1
        if uri == NO:
            await line.error(asked, -32002)
        else:
            self.held.add(uri)
            await line.result(asked, {})


def asked_for(peer: Peer, method: str) -> list[str]:
    return sorted(one.message["params"]["uri"] for one in peer.asked if one.method == f"resources/{method}")


async def test_only_the_difference_is_asked_for() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        assert (await made.client.follow([A, B])).resources == {A, B}
        assert (await made.client.follow([B, C])).resources == {B, C}
        assert asked_for(peer, "subscribe") == [A, B, C]
        assert asked_for(peer, "unsubscribe") == [A]
        assert server.held == {B, C}
        await made.client.follow()
        assert server.held == set()
        assert [event.honoured.resources for event in made.of(Following)] == [{A, B}, {B, C}, set()]


async def test_a_refused_uri_is_named_with_the_servers_words_and_asked_for_again_next_time() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        for _ in range(2):
            honoured = await made.client.follow([A, NO])
            assert (honoured.resources, honoured.refused) == ({A}, {NO: "error -32002"})
            assert honoured.passing == set()
        assert asked_for(peer, "subscribe") == [A, NO, NO]


async def test_without_the_capability_nothing_is_asked_and_the_reason_is_given() -> None:
    server = Sessions({"resources": {}, "tools": {}})
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        honoured = await made.client.follow([A], [ListKind.TOOLS], ["task-1"])
        assert not honoured.resources | honoured.lists | honoured.tasks
        assert honoured.refused.keys() == {A, ListKind.TOOLS, "task-1"}
        assert asked_for(peer, "subscribe") == []


async def test_lists_that_a_server_announces_need_no_request() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        before = len(peer.asked)
        honoured = await made.client.follow(lists=[ListKind.TOOLS, ListKind.PROMPTS])
        assert honoured.lists == {ListKind.TOOLS}
        assert honoured.refused.keys() == {ListKind.PROMPTS}
        assert len(peer.asked) == before


async def test_many_resources_are_asked_for_a_few_at_a_time() -> None:
    server = Sessions()
    server.gate.clear()
    uris = [f"note://{number}" for number in range(60)]
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        asking = asyncio.create_task(made.client.follow(uris))
        await until(lambda: server.most_at_once == 8)
        server.gate.set()
        assert (await asking).resources == set(uris)
        assert server.most_at_once == 8


async def test_a_subscription_without_an_answer_is_refused_and_taken_back_when_it_is_not_wanted_any_more() -> None:
    server = Sessions()
    server.gate.clear()
    async with scripted_http(server.script) as peer, connected(http(peer.url), timeouts=Timeouts(request=0.2)) as made:
        honoured = await made.client.follow([A])
        assert "in time" in honoured.refused[A]
        assert honoured.passing == {A}
        server.gate.set()
        await made.client.follow([])
        assert asked_for(peer, "unsubscribe") == [A]


async def test_after_a_renewal_everything_is_asked_for_again_and_the_gap_is_reported() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A, B], [ListKind.TOOLS])
        await made.client.set_log_level("error")
        server.forget()
        await made.client.ping()
        await until(lambda: len(made.of(Following)) == 2 and server.level)
        assert server.held == {A, B}
        assert server.level == "error"
        kinds = [type(event) for event in made.events if type(event) in (Following, FollowingLost)]
        assert kinds == [Following, FollowingLost, Following]
        assert made.of(Following)[1] == made.of(Following)[0]


async def test_a_renewal_in_the_middle_of_a_new_set_loses_none_of_it() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A])
        server.forget()
        assert (await made.client.follow([A, B])).resources == {A, B}
        await until(lambda: server.held == {A, B})


async def test_a_renewal_after_nothing_is_wanted_any_more_asks_for_nothing() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A])
        await made.client.follow([])
        server.forget()
        await made.client.ping()
        await made.client.ping()
        assert server.held == set()
        assert not made.of(FollowingLost)


async def test_closing_in_the_middle_is_an_error_of_the_waiter() -> None:
    server = Sessions()
    server.gate.clear()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        asking = asyncio.create_task(made.client.follow([A]))
        await until(lambda: asked_for(peer, "subscribe"))
        await made.client.close()
        with pytest.raises(McpError) as caught:
            await asking
        assert caught.value.fault is Fault.CLOSED


async def test_a_log_level_is_asked_for_only_where_there_is_a_log() -> None:
    server = Sessions({"tools": {}})
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        with pytest.raises(InvalidRequest) as caught:
            await made.client.set_log_level("info")
        assert caught.value.fault is Fault.NOT_OFFERED
        assert peer.count("logging/setLevel") == 0


async def test_a_log_level_that_does_not_exist_is_refused_here() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        with pytest.raises(InvalidRequest):
            await made.client.set_log_level("loud")
        await made.client.set_log_level(None)
        assert peer.count("logging/setLevel") == 0
        await made.client.set_log_level("notice")
        assert server.level == "notice"


async def test_updates_come_on_the_get_stream_and_its_loss_and_return_are_reported() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A])
        first = await server.stream()
        await first.event(
            {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": A}}, retry=1
        )
        await until(lambda: made.of(ResourceUpdated))
        first.reset()
        await server.stream()
        await until(lambda: len(made.of(Following)) == 2)
        assert [event.retried for event in made.of(FollowingLost)] == [True]
        assert made.of(Following)[1].honoured.resources == {A}


async def test_a_get_stream_that_can_be_resumed_loses_nothing_when_it_breaks() -> None:
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A])
        first = await server.stream()
        await first.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, id="e1", retry=1)
        await until(lambda: made.of(LogMessage))
        first.reset()
        second = await server.stream()
        assert [one.headers.get("last-event-id") for one in peer.asked if one.verb == "GET"] == [None, "e1"]
        await second.event({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": A}})
        await until(lambda: made.of(ResourceUpdated))
        assert not made.of(FollowingLost)


async def test_a_get_stream_that_broke_is_opened_again_although_it_is_refused_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "_LONGEST_PAUSE", 0.0)
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A])
        first = await server.stream()
        await first.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, id="e1", retry=1)
        await until(lambda: made.of(LogMessage))
        server.refusals = [503, 400, 409, 429, 502, 503, 503]
        first.reset()
        again = await server.stream()
        await again.event({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": A}})
        await until(lambda: made.of(ResourceUpdated))
        resumed = [one.headers.get("last-event-id") for one in peer.asked if one.verb == "GET"]
        assert resumed == [None, "e1", "e1", *[None] * 6]
        assert [event.retried for event in made.of(FollowingLost)] == [True]


async def test_a_server_that_has_no_get_stream_any_more_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cursor, "__init__", partialmethod(Cursor.__init__, retry=0.0))
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        await made.client.follow([A])
        server.refusals = [405]
        (await server.stream()).reset()
        await until(lambda: len(made.of(FollowingLost)) == 2)
        await asyncio.sleep(0.1)
        assert [event.retried for event in made.of(FollowingLost)] == [True, False]
        assert peer.count("GET") == 2


async def test_a_server_without_a_get_stream_is_followed_and_the_doubt_is_reported() -> None:
    server = Sessions(streams=None)
    async with scripted_http(server.script) as peer, connected(http(peer.url)) as made:
        assert (await made.client.follow([A])).resources == {A}
        assert [(event.retried, event.final) for event in made.of(FollowingLost)] == [(False, True)]
        await made.client.follow([])
        assert len(made.of(FollowingLost)) == 1


async def test_a_silent_get_stream_that_a_gateway_cuts_is_opened_again_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "STEADY", 0.0)
    monkeypatch.setattr(Cursor, "__init__", partialmethod(Cursor.__init__, retry=0.0))
    server = Sessions()
    async with scripted_http(server.script) as peer, connected(http(peer.url)):
        for _ in range(10):
            (await server.stream()).reset()

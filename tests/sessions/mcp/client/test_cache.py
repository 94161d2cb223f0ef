"""Results are reused only as far as a modern server allows; everything else is requested again."""

import asyncio
from typing import Any

import pytest

from sessions.mcp.client.cache import MAX_BYTES, MAX_ENTRIES, Cache, list_key, read_key
from sessions.mcp.core.caching import LONGEST_TTL_MS, Hints, hints_of
from sessions.mcp.core.errors import RpcError
from sessions.mcp.core.events import ListChanged, ListKind, ResourceUpdated
from tests.sessions.mcp.transports.making import FlowSecrets, connected, http
from tests.sessions.mcp.transports.scripted_http import Asked, Line, Peer, legacy, scripted_http

from .feeds import Feeds, feeding
from .test_following_modern import followed
from .waiting import until

HOUR = 3_600_000
TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
READ = {"contents": [{"uri": "note://a", "text": "a"}]}


# -- the hints


@pytest.mark.unit
@pytest.mark.parametrize(
    ("result", "hints"),
    [
        ({"ttlMs": 5, "cacheScope": "public"}, Hints(5, "public")),
        ({"ttlMs": 5, "cacheScope": "private"}, Hints(5, "private")),
        ({"ttlMs": 5, "cacheScope": "everybody"}, Hints(5, "private")),
        ({}, Hints(0, "private")),
        ({"ttlMs": -1}, Hints(0, "private")),
        ({"ttlMs": True}, Hints(0, "private")),
        ({"ttlMs": 1.5}, Hints(0, "private")),
        ({"ttlMs": "5"}, Hints(0, "private")),
        ({"ttlMs": 10**30}, Hints(LONGEST_TTL_MS, "private")),
    ],
)
def test_hints_that_make_no_sense_are_read_as_the_strictest(result: dict[str, Any], hints: Hints) -> None:
    assert hints_of(result) == hints


@pytest.mark.unit
def test_pages_together_live_as_long_and_are_as_public_as_the_strictest() -> None:
    assert Hints(9, "public").within(None) == Hints(9, "public")
    assert Hints(9, "public").within(Hints(5, "private")) == Hints(5, "private")
    assert Hints(5, "public").within(Hints(9, "public")) == Hints(5, "public")


# -- the cache itself


@pytest.mark.unit
def test_an_entry_is_fresh_until_its_time_and_then_gone() -> None:
    cache = Cache()
    cache.put(read_key("a"), {"x": 1}, fresh_until=10.0, now=0.0)
    assert cache.get(read_key("a"), 9.9) == {"x": 1}
    assert cache.get(read_key("a"), 10.0) is None
    assert len(cache) == 0


@pytest.mark.unit
def test_entries_and_bytes_are_bounded_and_the_least_used_goes_first() -> None:
    cache = Cache()
    for number in range(MAX_ENTRIES):
        cache.put(read_key(str(number)), {}, 10.0, 0.0)
    assert cache.get(read_key("0"), 0.0) == {}
    cache.put(read_key("new"), {}, 10.0, 0.0)
    assert len(cache) == MAX_ENTRIES
    assert cache.get(read_key("0"), 0.0) == {}
    assert cache.get(read_key("1"), 0.0) is None
    third = {"text": "x" * (MAX_BYTES // 3)}
    for number in range(3):
        cache.put(read_key(f"large{number}"), third, 10.0, 0.0)
    assert len(cache) == 2
    cache.put(read_key("huge"), {"text": "x" * MAX_BYTES}, 10.0, 0.0)
    assert cache.get(read_key("huge"), 0.0) is None
    assert len(cache) == 2


@pytest.mark.unit
def test_a_change_forgets_what_it_concerns_and_nothing_else() -> None:
    cache = Cache()
    keys = [list_key(kind) for kind in ListKind] + [read_key("dir"), read_key("dir/a"), read_key("dirt")]
    for key in keys:
        cache.put(key, {}, 10.0, 0.0)
    cache.on_event(ListChanged(ListKind.RESOURCES))
    assert cache.get(list_key(ListKind.RESOURCES), 0.0) is None
    assert cache.get(list_key(ListKind.RESOURCE_TEMPLATES), 0.0) is None
    assert cache.get(list_key(ListKind.TOOLS), 0.0) == {}
    cache.on_event(ResourceUpdated("dir/a"))
    assert [cache.get(read_key(uri), 0.0) for uri in ("dir", "dir/a", "dirt")] == [None, None, {}]


# -- the client with the cache


def hinted(result: dict[str, Any], ttl: int = HOUR) -> dict[str, Any]:
    return {**result, "ttlMs": ttl, "cacheScope": "public"}


def feeds() -> Feeds:
    made = Feeds()
    made.answers["tools/list"] = hinted(TOOLS)
    made.answers["resources/read"] = hinted(READ)
    return made


async def read(made: FlowSecrets, *, cached: bool = True) -> None:
    assert (await made.client.read_resource("note://a", cached=cached))["contents"] == READ["contents"]
    assert (await made.client.list_tools(cached=cached)).items == TOOLS["tools"]


def asked(peer: Peer) -> tuple[int, int]:
    return peer.count("resources/read"), peer.count("tools/list")


@pytest.mark.integration
async def test_only_who_asks_for_it_is_answered_from_the_cache() -> None:
    server = feeds()
    async with feeding(server) as url, connected(http(url)) as made:
        await read(made, cached=False)
        await read(made)
        await read(made)
        assert asked(server.peer) == (2, 2)
        await read(made, cached=False)
        assert asked(server.peer) == (3, 3)


@pytest.mark.integration
async def test_a_listing_names_its_hints() -> None:
    server = feeds()
    async with feeding(server) as url, connected(http(url)) as made:
        listing = await made.client.list_tools()
        assert (listing.ttl_ms, listing.cache_scope) == (HOUR, "public")


@pytest.mark.integration
async def test_what_may_not_be_used_again_is_asked_for_each_time() -> None:
    server = feeds()
    server.answers = {"tools/list": hinted(TOOLS, 0), "resources/read": READ}
    async with feeding(server) as url, connected(http(url)) as made:
        await read(made)
        await read(made)
        assert asked(server.peer) == (2, 2)


@pytest.mark.integration
async def test_a_change_that_the_server_tells_ends_the_use_at_once() -> None:
    server = feeds()
    async with feeding(server) as url, connected(http(url)) as made:
        stream = await followed(made, server, resources=["note://a"], lists=[ListKind.TOOLS])
        await read(made)
        await stream.notify("tools/list_changed")
        await stream.notify("resources/updated", uri="note://a")
        await until(lambda: made.of(ResourceUpdated))
        await read(made)
        assert asked(server.peer) == (2, 2)


@pytest.mark.integration
async def test_what_changes_while_it_is_read_is_not_kept() -> None:
    server = feeds()
    async with feeding(server) as url, connected(http(url)) as made:
        stream = await followed(made, server, lists=[ListKind.TOOLS])
        arrived, go = asyncio.Event(), asyncio.Event()

        async def held(asked: Asked, line: Line) -> None:
            arrived.set()
            await go.wait()
            await line.result(asked, hinted(TOOLS))

        server.acts["tools/list"] = held
        reading = asyncio.create_task(made.client.list_tools(cached=True))
        await arrived.wait()
        await stream.notify("tools/list_changed")
        await until(lambda: made.of(ListChanged))
        go.set()
        await reading
        await made.client.list_tools(cached=True)
        assert server.peer.count("tools/list") == 2


@pytest.mark.integration
async def test_a_call_that_the_server_does_not_know_ends_the_use_of_its_list() -> None:
    server = feeds()
    async with feeding(server) as url, connected(http(url)) as made:
        await made.client.list_tools(cached=True)
        server.refusals_of["tools/call"] = -32602
        with pytest.raises(RpcError):
            await made.client.call_tool("t", {})
        await made.client.list_tools(cached=True)
        assert server.peer.count("tools/list") == 2


@pytest.mark.integration
async def test_a_legacy_server_gives_no_hints_and_nothing_is_kept() -> None:
    async def unused(asked: Asked, line: Line) -> None:
        await line.error(asked, -32601)

    good = legacy(unused)

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "tools/list":
            await line.result(asked, hinted(TOOLS))
        else:
            await good(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        for _ in range(2):
            listing = await made.client.list_tools(cached=True)
            assert (listing.ttl_ms, listing.cache_scope) == (None, None)
        assert peer.count("tools/list") == 2

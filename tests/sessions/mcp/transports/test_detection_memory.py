"""What is remembered of a server saves the probe; once it is wrong, one new detection replaces it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from sessions.mcp.core.errors import HttpError, McpError, RpcError
from sessions.mcp.core.memory import LIFETIME, Remembered
from sessions.mcp.core.results import Connected, Timeouts
from sessions.mcp.core.state import State
from sessions.mcp.core.versions import Era

from .detecting import (
    DISCOVERED,
    moved_to_slash,
    no_call,
    page_404,
    probed,
    python_1_9_stateless,
    refusing,
    unknown,
    unsupported,
)
from .making import connected, http, script, unconnected
from .scripted_http import Asked, Line, Peer, Script, legacy, modern, scripted_http
from .scripted_sse import SseServer

pytestmark = pytest.mark.integration


# -- memory


def memory(peer_url: str, **more: Any) -> Remembered:
    now = time.time() - 100
    facts = {"era": Era.LEGACY, "revision": "2025-11-25", "kind": "streamable_http", "url": peer_url, "decided_at": now}
    return Remembered(**{**facts, **more})


async def by_memory(
    script: Script, make: Callable[[str], Remembered], **more: Any
) -> tuple[Connected | McpError, Peer, Remembered]:
    async with scripted_http(script) as peer:
        remembered = make(peer.url)
        client = unconnected(http(peer.url), remembered=remembered, **more)
        try:
            return await client.connect(), peer, remembered
        except McpError as exc:
            return exc, peer, remembered
        finally:
            await client.close()


async def test_a_remembered_legacy_server_is_not_probed_and_the_verdict_keeps_its_age() -> None:
    found, peer, before = await by_memory(legacy(no_call), memory)
    assert isinstance(found, Connected)
    assert peer.methods()[:1] == ["initialize"]
    assert found.remember == before


async def test_a_remembered_stream_is_opened_at_once() -> None:
    found, peer, _ = await by_memory(
        SseServer().script, lambda url: memory(url, kind="http_sse", revision="2024-11-05")
    )
    assert isinstance(found, Connected)
    assert peer.methods() == ["GET", "initialize", "notifications/initialized"]


async def test_a_remembered_url_saves_the_redirect() -> None:
    script = moved_to_slash(legacy(no_call))
    found, peer, _ = await by_memory(script, lambda url: memory(url + "/"))
    assert isinstance(found, Connected)
    assert {asked.path for asked in peer.asked} == {"/mcp/"}


@pytest.mark.parametrize("refusal", [unsupported, unknown])
async def test_a_server_that_became_modern_is_found_out_once_and_remembered_again(refusal: Script) -> None:
    async def script(asked: Asked, line: Line) -> None:
        await (line.result(asked, DISCOVERED) if asked.method == "server/discover" else refusal(asked, line))

    found, peer, before = await by_memory(script, memory)
    assert isinstance(found, Connected)
    assert peer.methods() == ["initialize", "server/discover"]
    assert found.remember is not None
    assert (found.remember.era, found.remember.decided_at > before.decided_at) == (Era.MODERN, True)


async def test_a_server_that_left_the_old_transport_is_found_out_once() -> None:
    found, peer, _ = await by_memory(modern(no_call), lambda url: memory(url, kind="http_sse"))
    assert isinstance(found, Connected)
    assert (found.transport, found.era) == ("streamable_http", "modern")
    assert peer.methods() == ["GET", "server/discover"]


async def test_a_server_that_became_legacy_is_found_by_the_probe_itself() -> None:
    found, peer, _ = await by_memory(
        probed(python_1_9_stateless), lambda url: memory(url, era=Era.MODERN, revision="2026-07-28")
    )
    assert isinstance(found, Connected)
    assert found.era == "legacy"
    assert peer.methods()[:2] == ["server/discover", "initialize"]


async def test_wrong_memory_of_a_server_that_speaks_nothing_costs_one_detection_and_no_more() -> None:
    found, peer, _ = await by_memory(refusing(404), lambda url: memory(url, kind="http_sse"))
    assert isinstance(found, HttpError)
    assert peer.methods() == ["GET", "server/discover", "initialize", "GET"]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_what_says_nothing_about_the_memory_does_not_shake_it(status: int) -> None:
    found, peer, _ = await by_memory(refusing(status), memory)
    assert isinstance(found, HttpError)
    assert peer.methods() == ["initialize"]


@pytest.mark.parametrize("age", [LIFETIME + 1, -3600])
async def test_memory_that_is_too_old_or_of_the_future_is_not_used(age: float) -> None:
    found, peer, before = await by_memory(legacy(no_call), lambda url: memory(url, decided_at=time.time() - age))
    assert isinstance(found, Connected)
    assert peer.methods()[0] == "server/discover"
    assert found.remember is not None
    assert found.remember.decided_at != before.decided_at


async def test_memory_against_the_setting_is_not_used() -> None:
    found, peer, _ = await by_memory(modern(no_call), memory, era="modern")
    assert isinstance(found, Connected)
    assert peer.methods() == ["server/discover"]


async def test_a_remembered_url_of_another_origin_is_never_asked() -> None:
    async with scripted_http(legacy(no_call)) as other:
        found, peer, _ = await by_memory(legacy(no_call), lambda url: memory(other.url))
        assert isinstance(found, Connected)
        assert found.url == peer.url
        assert other.connections == 0


# -- a server that is no longer modern


@pytest.mark.parametrize("answer", [page_404, unsupported])
async def test_an_open_modern_session_ends_when_the_server_is_a_modern_one_no_more(answer: Script) -> None:
    changed = False

    async def script(asked: Asked, line: Line) -> None:
        await (answer if changed else modern(no_call))(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        changed = True
        with pytest.raises(McpError):
            await made.client.list_tools()
        assert await asyncio.wait_for(asyncio.shield(made.client.closed), 10) is not None
        assert made.client.state is State.DISCONNECTED


async def test_an_unknown_method_of_a_modern_server_does_not_end_its_session() -> None:
    async with scripted_http(modern(no_call)) as peer, connected(http(peer.url)) as made:
        with pytest.raises(RpcError):
            await made.client.call_tool("t", {})
        await made.client.ping()
        assert made.client.state is State.READY


# -- children


async def test_a_child_that_the_probe_kills_gets_a_new_process_and_the_next_start_skips_the_probe() -> None:
    spec = script("server", "dies-at-probe")
    async with connected(spec, timeouts=Timeouts(probe=0.3)) as made:
        found = made.connected
        assert (found.era, found.transport) == ("legacy", "stdio")
        assert "process_exited" in found.decided_by
        assert found.remember is not None
        assert (found.remember.kind, found.remember.url) == ("stdio", "")
    async with connected(spec, remembered=found.remember) as made:
        assert made.connected.decided_by == "an earlier connection"


async def test_a_child_that_became_another_program_is_found_out_once() -> None:
    old = memory("", kind="stdio")
    async with connected(script("server", "modern", "no-initialize"), remembered=old) as made:
        assert made.connected.era == "modern"

"""Era, revision and transport found from a URL alone, in the fewest round trips; and what is remembered of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions.protocol.errors import Fault, HttpError, McpError, RpcError
from sessions.protocol.memory import LIFETIME, Remembered
from sessions.protocol.results import Connected, Timeouts
from sessions.protocol.state import State
from sessions.protocol.versions import Era

from .making import connected, http, script, unconnected
from .scripted_http import Asked, Line, Peer, Script, legacy, modern, scripted_http
from .scripted_sse import SseServer

pytestmark = pytest.mark.integration

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


def error_body(code: int, message: str = "no", *, identity: Any = None, data: Any = None) -> dict[str, Any]:
    error = {"code": code, "message": message} | ({"data": data} if data is not None else {})
    return {"jsonrpc": "2.0", "id": identity, "error": error}


async def no_call(asked: Asked, line: Line) -> None:
    await line.error(asked, -32601)


def probed(answer: Script, then: Script | None = None) -> Script:
    """A server whose answer to the probe is the test's."""
    rest = then or legacy(no_call, session="5e55")

    async def script(asked: Asked, line: Line) -> None:
        await (answer if asked.method == "server/discover" else rest)(asked, line)

    return script


async def opened(script: Script, **more: Any) -> tuple[Connected, Peer]:
    spec_more = more.pop("spec", {})
    async with scripted_http(script) as peer, connected(http(peer.url, **spec_more), **more) as made:
        assert made.client.state is State.READY
        return made.connected, peer


async def refused(script: Script, **more: Any) -> tuple[McpError, Peer]:
    async with scripted_http(script) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(http(peer.url), **more).connect()
    return caught.value, peer


# -- what real servers answer to the probe (design: table 2.6)


async def python_1_30_with_session(asked: Asked, line: Line) -> None:
    body = error_body(-32600, "Bad Request: Missing session ID", identity="server-error")
    await line.json(body, 400, Mcp_Session_Id="poisoned")


async def python_1_30_stateless(asked: Asked, line: Line) -> None:
    body = error_body(-32600, "Bad Request: Unsupported protocol version: 2026-07-28", identity="server-error")
    await line.json(body, 400)


async def python_1_9_stateless(asked: Asked, line: Line) -> None:
    await line.error(asked, -32602, data="")


async def typescript_with_session(asked: Asked, line: Line) -> None:
    await line.json(error_body(-32000, "Bad Request: Server not initialized"), 400)


async def typescript_stateless(asked: Asked, line: Line) -> None:
    await line.json(error_body(-32000, "Bad Request: Unsupported protocol version"), 400)


async def no_content(asked: Asked, line: Line) -> None:
    await line.reply(204, kind="")


async def accepted(asked: Asked, line: Line) -> None:
    await line.reply(202, kind="")


async def page(asked: Asked, line: Line) -> None:
    await line.reply(200, b"<!doctype html>", "text/html")


async def page_404(asked: Asked, line: Line) -> None:
    await line.reply(404, b"<!doctype html>", "text/html")


@pytest.mark.parametrize(
    "answer",
    [
        python_1_30_with_session,
        python_1_30_stateless,
        python_1_9_stateless,
        typescript_with_session,
        typescript_stateless,
        no_content,
        accepted,
        page,
        page_404,
    ],
)
async def test_a_legacy_server_is_initialized_after_its_answer_to_the_probe(answer: Script) -> None:
    found, peer = await opened(probed(answer))
    assert (found.era, found.revision, found.transport) == ("legacy", "2025-11-25", "streamable_http")
    assert peer.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]
    probe, initialize, initialized = peer.asked[:3]
    assert probe.headers["mcp-protocol-version"] == "2026-07-28"
    assert probe.headers["mcp-method"] == "server/discover"
    assert not {"mcp-session-id", "mcp-protocol-version", "mcp-method"} & set(initialize.headers)
    assert initialized.headers["mcp-session-id"] == "5e55"


async def test_a_modern_server_is_open_after_one_round_trip_and_never_initialized() -> None:
    found, peer = await opened(modern(no_call))
    assert (found.era, found.transport) == ("modern", "streamable_http")
    assert peer.methods() == ["server/discover"]


def moved_to_slash(then: Script) -> Script:
    async def script(asked: Asked, line: Line) -> None:
        if asked.path == "/mcp":
            await line.reply(307, kind="", Location="/mcp/")
        else:
            await then(asked, line)

    return script


async def test_an_old_server_that_redirects_to_a_slash_is_followed_and_its_last_url_remembered() -> None:
    found, peer = await opened(moved_to_slash(probed(python_1_30_with_session)))
    assert found.url.endswith("/mcp/")
    assert found.remember is not None
    assert found.remember.url == found.url
    assert [asked.path for asked in peer.asked].count("/mcp") == 1


def killed_by_the_probe() -> Script:
    dead = False

    async def script(asked: Asked, line: Line) -> None:
        nonlocal dead
        dead = dead or asked.method == "server/discover"
        if dead:
            await line.json(error_body(-32600, "task group died", identity="server-error"), 500)
        else:
            await legacy(no_call)(asked, line)

    return script


async def test_a_server_that_the_probe_kills_tells_both_failures_and_opens_with_the_setting_legacy() -> None:
    error, peer = await refused(killed_by_the_probe())
    assert peer.methods() == ["server/discover", "initialize"]
    assert "task group died" in error.detail
    found, peer = await opened(killed_by_the_probe(), era="legacy")
    assert found.decided_by == "the server's setting"
    assert peer.methods()[:1] == ["initialize"]


async def test_a_server_of_http_and_sse_is_found_after_two_refused_posts() -> None:
    found, peer = await opened(SseServer().script)
    assert (found.transport, found.revision) == ("http_sse", "2024-11-05")
    assert peer.methods() == ["server/discover", "initialize", "GET", "initialize", "notifications/initialized"]
    assert found.remember is not None
    assert (found.remember.kind, found.remember.url) == ("http_sse", peer.url)


async def test_the_setting_legacy_finds_http_and_sse_without_a_probe() -> None:
    found, peer = await opened(SseServer().script, era="legacy")
    assert found.transport == "http_sse"
    assert peer.methods()[:2] == ["initialize", "GET"]


async def test_a_chosen_transport_is_never_changed() -> None:
    async with scripted_http(SseServer().script) as peer:
        with pytest.raises(HttpError) as caught:
            await unconnected(http(peer.url, kind="streamable_http")).connect()
    assert caught.value.status == 405
    assert peer.count("GET") == 0


# -- what is no sign of an era


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (401, Fault.UNAUTHORIZED),
        (403, Fault.FORBIDDEN),
        (429, Fault.RATE_LIMITED),
        (500, Fault.HTTP_STATUS),
        (502, Fault.HTTP_STATUS),
        (503, Fault.HTTP_STATUS),
        (301, Fault.REDIRECTED),
        (302, Fault.REDIRECTED),
    ],
)
async def test_a_status_that_says_nothing_about_the_era_ends_the_opening_at_once(status: int, fault: Fault) -> None:
    async def answer(asked: Asked, line: Line) -> None:
        await line.reply(status, b"busy", "text/plain", Retry_After="21", WWW_Authenticate="Bearer", Location="/x")

    error, peer = await refused(probed(answer))
    assert isinstance(error, HttpError)
    assert (error.fault, error.status) == (fault, status)
    if status == 429:
        assert error.retry_after == 21.0
    assert peer.methods() == ["server/discover"]


async def test_an_unreachable_server_stays_of_unknown_era() -> None:
    async def cut(asked: Asked, line: Line) -> None:
        line.reset()

    error, peer = await refused(probed(cut))
    assert error.fault is Fault.CONNECTION_LOST
    assert peer.methods() == ["server/discover"]


# -- when initialize is refused


def refusing(status: int, kind: str = "text/plain", body: bytes = b"no", get: Script | None = None) -> Script:
    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET" and get is not None:
            await get(asked, line)
        else:
            await line.reply(status, body, kind)

    return script


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_where_neither_transport_is_spoken_both_are_told(status: int) -> None:
    error, peer = await refused(refusing(status))
    assert isinstance(error, HttpError)
    assert (error.fault, error.status) == (Fault.HTTP_STATUS, status)
    assert "HTTP+SSE was tried as well" in error.detail
    assert peer.methods() == ["server/discover", "initialize", "GET"]


async def test_a_web_page_where_the_endpoint_should_be_is_told_as_no_mcp_endpoint() -> None:
    error, _ = await refused(refusing(405, get=page))
    assert (error.fault, error.permanent) == (Fault.NOT_MCP, True)
    assert "405" in error.detail


async def test_a_stream_that_asks_for_authorization_is_told_as_such() -> None:
    async def unauthorized(asked: Asked, line: Line) -> None:
        await line.reply(401, kind="", WWW_Authenticate="Bearer a=b")

    error, _ = await refused(refusing(405, get=unauthorized))
    assert isinstance(error, HttpError)
    assert (error.fault, error.challenges) == (Fault.UNAUTHORIZED, ("Bearer a=b",))


async def test_a_legacy_server_that_refuses_our_initialize_by_an_error_tells_it() -> None:
    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await line.reply(405, kind="")
        else:
            await line.json(error_body(-32602, "bad capabilities", identity=asked.id), 400)

    error, peer = await refused(script)
    assert isinstance(error, RpcError)
    assert "bad capabilities" in error.detail
    assert peer.methods() == ["server/discover", "initialize", "GET"]


def slow_start(refusal: Callable[[Asked, Line], Awaitable[None]]) -> Script:
    """Modern, but its first answer comes from something that is not."""
    probes = 0

    async def script(asked: Asked, line: Line) -> None:
        nonlocal probes
        if asked.method == "server/discover":
            probes += 1
            await (line.reply(404, kind="") if probes == 1 else line.result(asked, DISCOVERED))
        elif asked.method == "initialize":
            await refusal(asked, line)
        else:
            await line.error(asked, -32601, 404)

    return script


async def unsupported(asked: Asked, line: Line) -> None:
    await line.error(asked, -32022, 400, {"supported": ["2026-07-28"], "requested": "2025-11-25"})


async def unknown(asked: Asked, line: Line) -> None:
    await line.error(asked, -32601, 404)


@pytest.mark.parametrize("refusal", [unsupported, unknown])
async def test_a_server_that_turned_modern_meanwhile_is_probed_once_more(refusal: Script) -> None:
    found, peer = await opened(slow_start(refusal))
    assert found.era == "modern"
    assert peer.methods() == ["server/discover", "initialize", "server/discover"]


async def test_the_setting_modern_never_initializes() -> None:
    error, peer = await refused(legacy(no_call), era="modern")
    assert error.fault is Fault.INCOMPATIBLE_VERSION
    assert peer.methods() == ["server/discover"]


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
async def test_a_server_that_became_modern_is_found_out_once_and_remembered_anew(refusal: Script) -> None:
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


# -- a modern server that is one no more


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
        assert "timeout" in found.decided_by
        assert found.remember is not None
        assert (found.remember.kind, found.remember.url) == ("stdio", "")
    async with connected(spec, remembered=found.remember) as made:
        assert made.connected.decided_by == "what is remembered of the server"


async def test_a_child_that_became_another_program_is_found_out_once() -> None:
    old = memory("", kind="stdio")
    async with connected(script("server", "modern", "no-initialize"), remembered=old) as made:
        assert made.connected.era == "modern"

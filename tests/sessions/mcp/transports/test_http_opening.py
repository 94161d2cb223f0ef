"""Opening a URL that is no MCP server, redirects, or never answers."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, HttpError, IncompatibleVersion, McpError
from sessions.mcp.core.events import ProtocolViolation
from sessions.mcp.core.results import Timeouts

from .http_answers import OK, empty, html, no_http, reset, rubbish
from .making import SMALL, connected, http, unconnected
from .scripted_http import Asked, Line, Script, legacy, modern, scripted_http

pytestmark = pytest.mark.integration


async def open_error(answer: Callable[[Asked, Line], Awaitable[None]], **more: Any) -> tuple[McpError, Any]:
    async with scripted_http(answer) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(http(peer.url, limits=SMALL), **more).connect()
        return caught.value, peer


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (html, Fault.NOT_MCP),
        (empty, Fault.NO_ANSWER),
        (rubbish, Fault.INVALID_MESSAGE),
        (reset, Fault.CONNECTION_LOST),
        (no_http, Fault.NOT_MCP),
    ],
)
async def test_what_is_no_mcp_server_is_told_so_when_connecting(answer: Script, fault: Fault) -> None:
    error, _ = await open_error(answer)
    assert error.fault is fault


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_a_question_of_rights_is_no_sign_of_the_era_and_is_asked_once(status: int) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -32600, "message": "no"}}, status)

    error, peer = await open_error(refuse)
    assert isinstance(error, HttpError)
    assert error.status == status
    assert len(peer.asked) == 1


async def test_a_redirect_of_the_probe_within_the_origin_is_followed_and_its_url_kept() -> None:
    inner = legacy(lambda asked, line: line.result(asked, OK))

    async def script(asked: Asked, line: Line) -> None:
        if asked.path == "/mcp":
            await line.reply(307, kind="", Location="/mcp/")
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        assert made.connected.url == peer.url + "/"
        await made.client.call_tool("t", {})
        assert [one.path for one in peer.asked].count("/mcp") == 1


async def test_a_redirect_to_another_origin_is_refused_and_carries_nothing_there() -> None:
    async with scripted_http(html) as other:

        async def script(asked: Asked, line: Line) -> None:
            await line.reply(307, kind="", Location=other.url + "?token=t")

        async with scripted_http(script) as peer:
            with pytest.raises(HttpError) as caught:
                await unconnected(http(peer.url, headers=lambda: {"Authorization": "Bearer s3cret"})).connect()
        assert caught.value.fault is Fault.REDIRECTED
        assert other.url in caught.value.detail
        assert "token=t" not in caught.value.detail
        assert "s3cret" not in caught.value.detail + repr(caught.value)
        assert other.asked == []


#: a legal name that IDNA 2008 cannot show
EMOJI = "xn--i-7iq.test"


@pytest.fixture
def emoji_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = socket.getaddrinfo

    def named(host: Any, port: Any, *how: Any, **more: Any) -> Any:
        return looked_up("127.0.0.1" if host == EMOJI else host, port, *how, **more)

    monkeypatch.setattr(socket, "getaddrinfo", named)


@pytest.mark.usefixtures("emoji_is_here")
@pytest.mark.parametrize("look_first", [True, False])
@pytest.mark.parametrize("kind", ["auto", "http_sse"])
async def test_a_host_whose_name_cannot_be_shown_in_unicode_is_one_like_any_other(kind: Any, look_first: bool) -> None:
    inner = legacy(lambda asked, line: line.result(asked, OK))

    async def script(asked: Asked, line: Line) -> None:
        if asked.path == "/mcp" and asked.verb == "POST":
            await line.reply(307, kind="", Location="/mcp/")
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer:
        client = unconnected(http(peer.url.replace("127.0.0.1", EMOJI), kind=kind))
        try:
            if kind == "auto":
                await client.connect((lambda step: None) if look_first else None)
                await client.call_tool("t", {})
            else:
                with pytest.raises(McpError):  # it offers no stream
                    await client.connect()
        finally:
            await client.close()
        assert peer.asked[0].headers["host"].startswith(f"{EMOJI}:")


async def test_a_redirect_to_a_host_whose_name_cannot_be_shown_is_reported() -> None:
    error, _ = await open_error(lambda asked, line: line.reply(307, kind="", Location=f"https://{EMOJI}/"))
    assert error.fault is Fault.REDIRECTED
    assert EMOJI in error.detail


async def test_a_circle_of_redirects_ends() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(308, kind="", Location="/mcp")

    error, peer = await open_error(script)
    assert error.fault is Fault.REDIRECTED
    assert len(peer.asked) == 4


async def test_a_redirect_that_names_no_address_is_reported_as_such() -> None:
    error, peer = await open_error(lambda asked, line: line.reply(307, kind=""))
    assert error.fault is Fault.REDIRECTED
    assert error.detail == "The server redirects (HTTP 307) but names no address: the Location header is missing."
    assert len(peer.asked) == 1


async def test_a_server_that_never_answers_the_probe_is_a_timeout_not_a_legacy_server() -> None:
    error, peer = await open_error(lambda asked, line: line.hang(), timeouts=Timeouts(initialize=0.2))
    assert error.fault is Fault.TIMEOUT
    assert "raise its connect timeout" in error.detail
    assert "set its era to legacy" in error.detail
    assert peer.methods() == ["server/discover"]


@pytest.mark.parametrize("server", [legacy, modern])
async def test_a_slow_server_has_the_whole_time_to_answer_the_probe(server: Callable[[Script], Script]) -> None:
    inner = server(lambda asked, line: line.result(asked, OK))

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "server/discover":
            await asyncio.sleep(0.3)
        await inner(asked, line)

    brief = Timeouts(probe=0.05, initialize=20)
    async with scripted_http(script) as peer, connected(http(peer.url), timeouts=brief) as made:
        assert made.connected.era == server.__name__
        assert peer.count("server/discover") == 1


async def test_a_server_of_an_unknown_future_is_incompatible() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.error(asked, -32022, 400, {"supported": ["2099-01-01"], "requested": "2026-07-28"})

    error, _ = await open_error(script)
    assert isinstance(error, IncompatibleVersion)
    assert error.supported == ("2099-01-01",)


async def test_the_session_id_of_a_refused_probe_is_never_used() -> None:
    inner = legacy(lambda asked, line: line.result(asked, OK), session="good-id")

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "server/discover":
            body = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Missing session ID"}}
            await line.json(body, 400, Mcp_Session_Id="poisoned")
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await made.client.call_tool("t", {})
        initialize = peer.asked[1]
        assert initialize.method == "initialize"
        assert "mcp-session-id" not in initialize.headers
        assert "mcp-protocol-version" not in initialize.headers
        assert {one.headers.get("mcp-session-id") for one in peer.asked[2:]} == {"good-id"}
        assert {one.headers.get("mcp-protocol-version") for one in peer.asked[2:]} == {"2025-11-25"}
        assert "good-id" not in repr(made.connected)
    assert peer.methods()[-1] == "DELETE"


async def test_a_session_id_may_be_as_long_as_a_signed_token_and_is_sent_back_whole() -> None:
    long = "s" * 16_384
    script = legacy(lambda asked, line: line.result(asked, OK), session=long)
    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await made.client.call_tool("t", {})
        assert [one.headers.get("mcp-session-id") == long for one in peer.asked if one.method == "tools/call"] == [True]


@pytest.mark.parametrize("session", ["s" * 16_385, "two words", "s\xe9ance"])
async def test_a_session_id_that_cannot_be_sent_back_is_reported(session: str) -> None:
    script = legacy(lambda asked, line: line.result(asked, OK), session=session)
    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await made.client.call_tool("t", {})
        (violation,) = made.of(ProtocolViolation)
    assert violation.detail.startswith("The server's Mcp-Session-Id header cannot be sent back")
    assert all("mcp-session-id" not in one.headers for one in peer.asked)


def answering_initialized(status: int, body: bytes = b"") -> Script:
    """A correct legacy server, except that it answers `notifications/initialized` with this."""
    inner = legacy(lambda asked, line: line.result(asked, OK), session="s")

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "notifications/initialized":
            await line.reply(status, body)
        else:
            await inner(asked, line)

    return script


@pytest.mark.parametrize("status", [400, 404, 500, 501, 503])
async def test_an_error_in_answer_to_initialized_is_reported_and_the_session_is_used(status: int) -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}'
    async with scripted_http(answering_initialized(status, body)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert peer.count("initialize") == 1
        (violation,) = made.of(ProtocolViolation)
    assert violation.detail == (
        f'The server rejected notifications/initialized with HTTP {status}. The server says: "Method not found"'
    )


@pytest.mark.parametrize("head", [b"202 Accepted", b"200 OK\r\nContent-Type: text/event-stream"])
async def test_an_answer_to_initialized_that_never_ends_does_not_prevent_the_opening(head: bytes) -> None:
    """A server written by hand that names no length and keeps the connection."""
    inner = legacy(lambda asked, line: line.result(asked, OK), session="s")

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "notifications/initialized":
            await line.raw(b"HTTP/1.1 %b\r\n\r\n" % head)
            await line.hang()
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert peer.count("notifications/initialized") == 1


async def test_a_403_that_says_when_to_come_back_is_a_rate_limit_and_says_nothing_about_the_era() -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(403, b"secondary rate limit", "text/plain", Retry_After="60")

    async with scripted_http(refuse) as peer:
        with pytest.raises(HttpError) as caught:
            await unconnected(http(peer.url, credential=True)).connect()
    error = caught.value
    assert (error.fault, error.retry_after, error.may_have_run) == (Fault.RATE_LIMITED, 60.0, False)
    assert peer.methods() == ["server/discover"]


@pytest.mark.parametrize(("status", "fault"), [(401, Fault.UNAUTHORIZED), (429, Fault.RATE_LIMITED)])
async def test_a_refusal_of_initialized_that_concerns_rights_or_load_ends_the_opening(
    status: int, fault: Fault
) -> None:
    error, _ = await open_error(answering_initialized(status))
    assert error.fault is fault

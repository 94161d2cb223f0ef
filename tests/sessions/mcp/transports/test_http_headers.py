"""Headers, cookies, and arguments that a modern request repeats in headers; sessions leak no descriptors."""

import asyncio
import logging
import os
from collections.abc import Callable

import pytest

from sessions.mcp.core.errors import Fault, InvalidRequest, McpError, RpcError
from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.core.limits import Limits
from sessions.mcp.oauth.exchange import get
from sessions.mcp.transports.authorization_http import AuthorizationHttp

from .http_answers import ERAS, OK, html
from .making import LOCAL, connected, http, unconnected
from .scripted_http import INITIALIZED, Asked, Line, Script, legacy, modern, scripted_http

pytestmark = pytest.mark.integration


def behind_a_load_balancer(cookie: str = "AWSALB=b+/0==; Expires=Fri, 01 Jan 2100 00:00:00 GMT; Path=/") -> Script:
    """A legacy server on several nodes. The cookie names the one with the session, which the others do not know."""
    inner = legacy(lambda asked, line: line.result(asked, OK), session="s")

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "initialize":
            await line.result(asked, INITIALIZED, Mcp_Session_Id="s", Set_Cookie=cookie)
        elif asked.method != "server/discover" and cookie.partition(";")[0] not in asked.headers.get("cookie", ""):
            await line.reply(404, b"no such session", "text/plain")
        else:
            await inner(asked, line)

    return script


async def test_a_session_returns_to_the_node_that_a_cookie_of_its_load_balancer_names() -> None:
    async with scripted_http(behind_a_load_balancer()) as peer:
        async with connected(http(peer.url)) as made:
            for _ in range(2):
                assert (await made.client.call_tool("t", {})).raw == OK
            await made.client.ping()
            assert peer.count("initialize") == 1
        assert peer.asked[-1].verb == "DELETE"
        assert "AWSALB" in peer.asked[-1].headers["cookie"]


async def test_the_cookies_of_a_connection_are_no_other_requests() -> None:
    async with scripted_http(behind_a_load_balancer()) as peer, connected(http(peer.url)) as made:
        await made.client.call_tool("t", {})
        before = len(peer.asked)
        await AuthorizationHttp(LOCAL)(get(peer.url))
        async with connected(http(peer.url)) as second:
            await second.client.ping()
            others = [one for one in peer.asked[before:] if one.method in ("", "server/discover", "initialize")]
            assert [one.verb for one in others] == ["GET", "POST", "POST", "GET"]
            assert ["cookie" in one.headers for one in others] == [False, False, False, True]


async def test_a_cookie_for_encrypted_connections_or_another_path_is_not_sent() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.result(asked, OK, Set_Cookie=next(set_by_calls))

    set_by_calls = iter(["a=1; Secure", "b=1; Path=/admin", "c=1; Max-Age=0", "d=1", "d=2"])
    async with scripted_http(modern(on_call)) as peer, connected(http(peer.url)) as made:
        for _ in range(5):
            await made.client.call_tool("t", {}, input_schema={})
        await made.client.ping()
    assert [one.headers.get("cookie") for one in peer.asked[-2:]] == ["d=1", "d=2"]


async def test_a_cookie_that_the_servers_own_headers_set_stays_as_it_is() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.result(asked, OK, Set_Cookie="key=theirs", set_cookie="node=1")

    spec_headers = lambda: {"cookie": "key=mine; theme=dark"}  # noqa: E731 - short
    async with scripted_http(modern(on_call)) as peer, connected(http(peer.url, headers=spec_headers)) as made:
        for _ in range(2):
            await made.client.call_tool("t", {}, input_schema={})
    assert peer.asked[-2].headers["cookie"] == "key=mine; theme=dark"
    assert peer.asked[-1].headers["cookie"] == "key=mine; theme=dark; node=1"


@pytest.mark.parametrize("cookie", ["n{}=1", "n=1; Path=/{}", "n{}=" + "x" * 3_000, "n{}=" + "x" * 10_000])
async def test_a_server_that_sets_cookies_without_end_is_bounded_and_its_session_goes_on(cookie: str) -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.result(asked, OK, Set_Cookie=cookie.format(next(numbers)))

    numbers = iter(range(100))
    async with scripted_http(modern(on_call)) as peer, connected(http(peer.url)) as made:
        for _ in range(50):
            assert (await made.client.call_tool("t", {}, input_schema={})).raw == OK
    sent = peer.asked[-1].headers.get("cookie", "")
    assert len(sent) <= 8 * 1024
    assert sent.count("=") <= 20


async def test_headers_are_asked_for_each_request_and_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted_http(html) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        tokens = iter(f"s3cret-{n}" for n in range(100))
        spec_headers = lambda: {"Authorization": f"Bearer {next(tokens)}", "Accept": "nothing", "X-Own": "1"}  # noqa: E731 - short
        async with scripted_http(modern(lambda asked, line: line.result(asked, OK))) as peer:
            async with connected(http(peer.url, headers=spec_headers)) as made:
                await made.client.call_tool("t", {}, input_schema={})
            assert [one.headers["authorization"] for one in peer.asked] == ["Bearer s3cret-0", "Bearer s3cret-1"]
            assert {one.headers["accept"] for one in peer.asked} == {"application/json, text/event-stream"}
            assert {one.headers["x-own"] for one in peer.asked} == {"1"}
        assert proxy.asked == []
    assert "s3cret" not in caplog.text
    assert "s3cret" not in repr(http("http://x", headers=spec_headers))


@pytest.mark.parametrize("own", [{}, {"User-Agent": "acme/1.0"}, {"user-agent": "acme/1.0"}])
async def test_a_server_is_told_one_user_agent_which_its_headers_may_name(own: dict[str, str]) -> None:
    told: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        told.extend(line for line in head.splitlines() if line.lower().startswith(b"user-agent:"))
        writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        with pytest.raises(McpError):
            await unconnected(http(url, headers=lambda: own)).connect()
    assert [line.partition(b": ")[2] for line in told] == [b"acme/1.0" if own else b"mcpadmin"]


async def test_a_header_with_a_line_break_is_refused_before_anything_is_sent() -> None:
    async with scripted_http(html) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(http(peer.url, headers=lambda: {"X": "a\r\nHost: evil"})).connect()
        assert caught.value.fault is Fault.INVALID_REQUEST
        assert "evil" not in caught.value.detail
        assert peer.asked == []


@pytest.mark.parametrize("era", ERAS)
async def test_no_descriptor_and_no_task_is_left_after_many_sessions(era: Callable[..., Script]) -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    async def one(url: str) -> None:
        async with connected(http(url)) as made:
            await made.client.call_tool("t", {})

    async with scripted_http(era(on_call)) as peer:
        await one(peer.url)
        await asyncio.sleep(0.1)
        descriptors, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        for _ in range(10):
            await one(peer.url)
        for _ in range(100):
            if len(os.listdir("/proc/self/fd")) <= descriptors and len(asyncio.all_tasks()) <= tasks:
                break
            await asyncio.sleep(0.02)
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert len(asyncio.all_tasks()) <= tasks


ZONED = {
    "name": "t",
    "inputSchema": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
}


async def test_a_modern_call_repeats_its_annotated_arguments_in_headers() -> None:
    async with scripted_http(modern(lambda asked, line: line.result(asked, OK), [ZONED])) as peer:
        async with connected(http(peer.url)) as made:
            await made.client.call_tool("t", {"zone": "eu-1"})
            await made.client.call_tool("t", {"zone": "Grüße"}, input_schema=ZONED["inputSchema"])  # type: ignore[arg-type]  # the literal above
        calls = [one for one in peer.asked if one.method == "tools/call"]
        assert [one.headers["mcp-param-zone"] for one in calls] == ["eu-1", "=?base64?R3LDvMOfZQ==?="]
        assert {(one.headers["mcp-method"], one.headers["mcp-name"]) for one in calls} == {("tools/call", "t")}
        assert all("mcp-session-id" not in one.headers for one in peer.asked)


async def test_half_a_surrogate_pair_in_a_repeated_argument_is_refused_and_the_session_still_ends() -> None:
    async with scripted_http(modern(lambda asked, line: line.result(asked, OK), [ZONED])) as peer:
        async with connected(http(peer.url)) as made:
            with pytest.raises(InvalidRequest):
                await made.client.call_tool("t", {"zone": "\ud800"})
            assert made.client.in_flight == 0
            await made.client.call_tool("t", {"zone": "eu-1"})
        assert made.client.closed.done()
        assert peer.count("tools/call") == 1


async def test_a_request_whose_caller_failed_before_it_was_sent_does_not_keep_the_session_from_ending() -> None:
    def torn(identity: RequestId) -> None:
        raise RuntimeError("torn")

    async with scripted_http(modern(lambda asked, line: line.result(asked, OK))) as peer:
        async with connected(http(peer.url)) as made:
            with pytest.raises(RuntimeError):
                await made.client.call_tool("t", {}, input_schema={}, numbered=torn)
        assert made.client.closed.done()


async def test_a_header_mismatch_is_mended_by_one_new_list_and_one_new_attempt() -> None:
    attempts: list[tuple[int, str]] = []

    async def on_call(asked: Asked, line: Line) -> None:
        if asked.headers.get("mcp-param-zone") is None:
            await line.error(asked, -32020, 400)
        else:
            await line.result(asked, OK)

    async def note(attempt: int, reason: str) -> None:
        attempts.append((attempt, reason))

    async with scripted_http(modern(on_call, [ZONED])) as peer, connected(http(peer.url)) as made:
        result = await made.client.call_tool("t", {"zone": "eu"}, input_schema={}, before_send=note)
        assert (result.attempts, attempts) == (2, [(1, "first"), (2, "header_mismatch")])
        with pytest.raises(RpcError) as caught:
            await made.client.call_tool("t", {}, input_schema={})
        assert (caught.value.code, caught.value.may_have_run) == (-32020, False)


async def test_a_tool_with_a_bad_header_annotation_is_left_out_and_its_sibling_kept() -> None:
    bad = {
        "name": "bad",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A\r\nB"}}},
    }
    async with scripted_http(modern(html, [bad, ZONED])) as peer, connected(http(peer.url)) as made:
        listing = await made.client.list_tools()
        assert listing.items == [ZONED]
        assert "bad" in listing.warnings[0]


async def test_an_endless_list_stops_at_its_cap() -> None:
    pages = iter(range(10**6))

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "tools/list":
            number = next(pages)
            await line.result(asked, {"tools": [{"name": f"t{number}"}], "nextCursor": str(number)})
        else:
            await modern(html)(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url, limits=Limits(list_pages=20))) as made:
        listing = await made.client.list_tools()
        assert listing.truncated
        assert len(listing.items) == 20
        assert peer.count("tools/list") == 20

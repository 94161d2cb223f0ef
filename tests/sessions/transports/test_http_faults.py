"""Streamable HTTP against scripted peers: what each wrong answer means, and that a call is never sent twice."""

import asyncio
import contextlib
import gzip
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions.protocol.errors import (
    Fault,
    HttpError,
    IncompatibleVersion,
    McpError,
    RpcError,
    TransportError,
)
from sessions.protocol.limits import Limits
from sessions.protocol.results import Timeouts
from sessions.protocol.state import State

from .making import SMALL, connected, http, unconnected
from .scripted_http import INITIALIZED, Asked, Line, Script, legacy, modern, scripted_http

pytestmark = pytest.mark.integration

OK: dict[str, Any] = {"content": [{"type": "text", "text": "ok"}]}
ERAS = [pytest.param(legacy, id="legacy"), pytest.param(modern, id="modern")]


async def fail_call(
    script: Script, *, limits: Limits = SMALL, then_fine: bool = True, **more: Any
) -> tuple[McpError, Any]:
    """The error of one call under this script, and the peer; the session must stay usable."""
    async with scripted_http(script) as peer:
        async with connected(http(peer.url, limits=limits), **more) as made:
            with pytest.raises(McpError) as caught:
                await made.client.call_tool("t", {"a": 1})
            assert made.client.in_flight == 0
            if then_fine:
                await made.client.ping()
                assert made.client.state is State.READY
        return caught.value, peer


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_a_call_is_refused_and_never_followed(era: Callable[..., Script], status: int) -> None:
    async def redirect(asked: Asked, line: Line) -> None:
        await line.reply(status, kind="", Location="/mcp")

    error, peer = await fail_call(era(redirect))
    assert isinstance(error, HttpError)
    assert (error.fault, error.status, error.may_have_run) == (Fault.REDIRECTED, status, True)
    assert peer.count("tools/call") == 1


@pytest.mark.parametrize(
    ("status", "fault", "may_have_run"),
    [
        (401, Fault.UNAUTHORIZED, False),
        (403, Fault.FORBIDDEN, False),
        (429, Fault.RATE_LIMITED, True),
        (500, Fault.HTTP_STATUS, True),
        (502, Fault.HTTP_STATUS, True),
        (503, Fault.HTTP_STATUS, True),
        (504, Fault.HTTP_STATUS, True),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_a_status_has_its_fault_and_is_never_repeated(
    era: Callable[..., Script], status: int, fault: Fault, may_have_run: bool
) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, b"<html>internal</html>", "text/html", Retry_After="17", WWW_Authenticate="Bearer a=b")

    error, peer = await fail_call(era(refuse))
    assert isinstance(error, HttpError)
    assert (error.fault, error.may_have_run, error.retry_after) == (fault, may_have_run, 17.0)
    assert error.challenges == ("Bearer a=b",)
    assert "internal" not in error.detail
    assert peer.count("tools/call") == 1


async def html(asked: Asked, line: Line) -> None:
    await line.reply(200, b"<!doctype html>", "text/html; charset=utf-8")


async def empty(asked: Asked, line: Line) -> None:
    await line.reply(200, b"")


async def accepted(asked: Asked, line: Line) -> None:
    await line.reply(202, kind="")


async def rubbish(asked: Asked, line: Line) -> None:
    await line.reply(200, b"this is } not { JSON \x00\xff")


async def duplicate_keys(asked: Asked, line: Line) -> None:
    await line.reply(200, b'{"jsonrpc":"2.0","id":%d,"result":{"a":1,"a":2}}' % asked.id)


async def deep(asked: Asked, line: Line) -> None:
    await line.reply(200, b'{"jsonrpc":"2.0","id":%d,"result":{"a":%b}}' % (asked.id, b"[" * 5000 + b"]" * 5000))


async def oversized(asked: Asked, line: Line) -> None:
    await line.result(asked, {"text": "x" * 70_000})


async def endless(asked: Asked, line: Line) -> None:
    await line.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await line.chunk(b" " * 8192)


async def oversized_event(asked: Asked, line: Line) -> None:
    await line.stream()
    await line.event({"jsonrpc": "2.0", "id": asked.id, "result": {"text": "x" * 200_000}})


async def rubbish_event(asked: Asked, line: Line) -> None:
    await line.stream()
    await line.event(text='data: {"jsonrpc": nothing}')


async def bomb(asked: Asked, line: Line) -> None:
    await line.reply(200, gzip.compress(b" " * 30_000_000), Content_Encoding="gzip")


async def brotli(asked: Asked, line: Line) -> None:
    await line.reply(200, b"\x0b\x02\x80{}\x03", Content_Encoding="br")


async def foreign_id(asked: Asked, line: Line) -> None:
    await line.json({"jsonrpc": "2.0", "id": "somebody-else", "result": {}})


async def string_id(asked: Asked, line: Line) -> None:
    await line.json({"jsonrpc": "2.0", "id": str(asked.id), "result": {}})


async def reset(asked: Asked, line: Line) -> None:
    line.reset()


async def cut(asked: Asked, line: Line) -> None:
    await line.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    line.reset()


async def stream_end(asked: Asked, line: Line) -> None:
    await line.stream()
    await line.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
    await line.end()


async def long_header(asked: Asked, line: Line) -> None:
    await line.result(asked, OK, X_Long="x" * 150_000)


async def many_headers(asked: Asked, line: Line) -> None:
    await line.result(asked, OK, **{f"X_{number}": "y" for number in range(300)})


async def big_headers(asked: Asked, line: Line) -> None:
    await line.result(asked, OK, **{f"X_{number}": "y" * 2_000 for number in range(100)})


async def no_http(asked: Asked, line: Line) -> None:
    await line.raw(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
    line.reset()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (html, Fault.NOT_MCP),
        (empty, Fault.NO_ANSWER),
        (accepted, Fault.NO_ANSWER),
        (rubbish, Fault.INVALID_MESSAGE),
        (duplicate_keys, Fault.INVALID_MESSAGE),
        (deep, Fault.DEPTH_LIMIT),
        (oversized, Fault.MESSAGE_LIMIT),
        (endless, Fault.MESSAGE_LIMIT),
        (oversized_event, Fault.MESSAGE_LIMIT),
        (rubbish_event, Fault.INVALID_MESSAGE),
        (bomb, Fault.MESSAGE_LIMIT),
        (brotli, Fault.NOT_MCP),
        (foreign_id, Fault.NO_ANSWER),
        (string_id, Fault.NO_ANSWER),
        (reset, Fault.CONNECTION_LOST),
        (cut, Fault.CONNECTION_LOST),
        (stream_end, Fault.CONNECTION_LOST),
        (long_header, Fault.HEADER_LIMIT),
        (many_headers, Fault.HEADER_LIMIT),
        (big_headers, Fault.HEADER_LIMIT),
        (no_http, Fault.NOT_MCP),
    ],
)
async def test_a_wrong_answer_fails_the_call_once_as_unknown_and_spares_the_session(
    era: Callable[..., Script], answer: Script, fault: Fault
) -> None:
    error, peer = await fail_call(era(answer))
    assert (error.fault, error.may_have_run) == (fault, True)
    assert peer.count("tools/call") == 1


async def test_a_compressed_answer_within_the_bound_is_read() -> None:
    async def squeezed(asked: Asked, line: Line) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": OK}).encode()
        await line.reply(200, gzip.compress(body), Content_Encoding="gzip")

    async with scripted_http(legacy(squeezed)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert all(one.headers["accept-encoding"] == "identity" for one in peer.asked)


@pytest.mark.parametrize("era", ERAS)
async def test_a_silent_server_fails_the_call_at_its_deadline(era: Callable[..., Script]) -> None:
    async def silent(asked: Asked, line: Line) -> None:
        await line.hang()

    async with scripted_http(era(silent)) as peer, connected(http(peer.url)) as made:
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("t", {}, timeout=0.2)
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, True)
        async with asyncio.timeout(5):
            await peer.hung_up.wait()


@pytest.mark.parametrize(("era", "told"), [(legacy, True), (modern, False)])
async def test_cancelling_closes_the_stream_and_only_a_legacy_server_is_told_by_notification(
    era: Callable[..., Script], told: bool
) -> None:
    begun = asyncio.Event()

    async def streaming(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.chunk(b": working\n\n")
        begun.set()
        await line.hang()

    async with scripted_http(era(streaming)) as peer, connected(http(peer.url)) as made:
        waiting = asyncio.create_task(made.client.call_tool("t", {}))
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(5):
            await peer.hung_up.wait()
        await made.client.ping()
        for _ in range(100 if told else 3):
            if peer.count("notifications/cancelled"):
                break
            await asyncio.sleep(0.02)
        assert peer.count("notifications/cancelled") == int(told)


async def test_a_refused_connection_is_certain_and_soon_counts_as_lost() -> None:
    async with scripted_http(modern(html)) as peer:
        client = unconnected(http(peer.url))
        await client.connect()
    try:
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", {})
        # The first call may meet the kept connection that the peer closed just now.
        if caught.value.fault is not Fault.CONNECTION_REFUSED:
            with pytest.raises(McpError) as caught:
                await client.call_tool("t", {})
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.CONNECTION_REFUSED, False)
        async with asyncio.timeout(5):
            reason = await client.closed
        assert reason is not None
        assert reason.fault is Fault.CONNECTION_REFUSED
    finally:
        await client.close()


@pytest.mark.parametrize("look_first", [True, False])
async def test_a_host_that_accepts_no_connection_is_a_timeout_that_certainly_ran_nothing(look_first: bool) -> None:
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # fill the queue of connections that nobody accepts
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        client = unconnected(http(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", connect_timeout=0.3))
        with pytest.raises(TransportError) as caught:
            await client.connect((lambda step: None) if look_first else None)
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, False)


# -- opening


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


async def test_a_circle_of_redirects_ends() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(308, kind="", Location="/mcp")

    error, peer = await open_error(script)
    assert error.fault is Fault.REDIRECTED
    assert len(peer.asked) == 4


async def test_a_server_that_never_answers_the_probe_is_a_timeout_not_a_legacy_server() -> None:
    error, peer = await open_error(lambda asked, line: line.hang(), timeouts=Timeouts(probe=0.2))
    assert error.fault is Fault.TIMEOUT
    assert peer.methods() == ["server/discover"]


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


# -- sessions, streams, headers


def forgetful(calls: list[str]) -> Script:
    """A server that forgets its session at each call until it was initialised twice."""
    initialized: list[str] = []

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "GET":
            await line.reply(405, kind="")
        elif asked.method == "initialize":
            initialized.append(f"s{len(initialized) + 1}")
            await line.result(asked, INITIALIZED, Mcp_Session_Id=initialized[-1])
        elif asked.method == "tools/call":
            if asked.headers.get("mcp-session-id") == "s1":
                await line.json({"jsonrpc": "2.0", "id": asked.id, "error": {"code": -1, "message": "gone"}}, 404)
            else:
                calls.append(asked.message["params"]["arguments"]["n"])
                await line.result(asked, OK)
        elif asked.id is None or asked.verb == "DELETE":
            await line.reply(202, kind="")
        else:
            await line.error(asked, -32601)

    return script


async def test_a_forgotten_session_is_renewed_once_for_many_calls_and_each_is_executed_once() -> None:
    executed: list[str] = []
    attempts: list[tuple[int, str]] = []

    async def note(attempt: int, reason: str) -> None:
        attempts.append((attempt, reason))

    async with scripted_http(forgetful(executed)) as peer, connected(http(peer.url)) as made:
        calls = [made.client.call_tool("t", {"n": str(n)}, before_send=note) for n in range(10)]
        results = await asyncio.gather(*calls)
        assert peer.count("initialize") == 2
    assert sorted(executed) == [str(n) for n in range(10)]
    assert all(result.attempts <= 2 for result in results)
    assert attempts.count((2, "session_gone")) == len(attempts) - 10 > 0


async def test_a_second_404_right_after_the_renewal_is_an_error() -> None:
    async def script(asked: Asked, line: Line) -> None:
        await line.reply(404, kind="")

    async with scripted_http(legacy(script, session="s")) as peer, connected(http(peer.url)) as made:
        with pytest.raises(HttpError) as caught:
            await made.client.call_tool("t", {})
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.SESSION_GONE, False)
        assert peer.count("tools/call") == 2
        assert peer.count("initialize") == 2


async def test_a_404_without_a_session_is_no_reason_to_try_again() -> None:
    error, peer = await fail_call(legacy(lambda asked, line: line.reply(404, kind="")))
    assert (error.fault, peer.count("tools/call")) == (Fault.HTTP_STATUS, 1)


async def test_a_broken_stream_with_an_id_is_resumed_by_get_and_never_posted_again() -> None:
    resumed: list[str] = []
    call: list[Asked] = []

    async def first_half(asked: Asked, line: Line) -> None:
        call.append(asked)
        await line.stream()
        await line.event(id="e1", retry=50)
        await line.end()

    async def on_get(asked: Asked, line: Line) -> None:
        last = asked.headers.get("last-event-id")
        if last is None:
            await line.reply(405, kind="")
            return
        resumed.append(last)
        await line.stream()
        if len(resumed) == 1:
            await line.event(id="e2", retry=10)
            await line.end()
        else:
            await line.event({"jsonrpc": "2.0", "id": call[0].id, "result": OK}, id="e3")

    async with scripted_http(legacy(first_half, session="s", on_get=on_get)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert resumed == ["e1", "e2"]
        assert peer.count("tools/call") == 1


async def test_a_stream_that_breaks_again_and_again_without_news_is_given_up() -> None:
    async def broken(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(id="e1", retry=1)
        line.reset()

    async def on_get(asked: Asked, line: Line) -> None:
        if "last-event-id" not in asked.headers:
            await line.reply(405, kind="")
            return
        await line.stream()
        await line.end()

    error, peer = await fail_call(legacy(broken, on_get=on_get))
    assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert peer.count("tools/call") == 1


async def test_an_answer_on_the_get_stream_ends_the_call_whose_own_stream_is_silent() -> None:
    listening: list[Line] = []

    async def on_get(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        listening.append(line)
        await line.hang()

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await listening[0].event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.hang()

    async with scripted_http(legacy(on_call, session="s", on_get=on_get)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert [type(event).__name__ for event in made.events if "List" in type(event).__name__] == ["ListChanged"]


@pytest.mark.parametrize("status", [400, 401, 404, 405, 406, 501, 200])
async def test_a_server_without_get_stream_is_fine(status: int) -> None:
    async def on_get(asked: Asked, line: Line) -> None:
        await line.reply(status, b"{}")

    script = legacy(lambda asked, line: line.result(asked, OK), session="s", on_get=on_get)
    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert peer.methods().count("GET") == 1


async def test_a_request_of_the_server_on_the_calls_stream_is_answered_by_a_post() -> None:
    answered = asyncio.Event()
    answers: list[Any] = []

    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "id": "e-1", "method": "elicitation/create", "params": {}})
        await answered.wait()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    inner = legacy(on_call)

    async def script(asked: Asked, line: Line) -> None:
        if asked.verb == "POST" and not asked.method:
            answers.append(asked.message)
            answered.set()
            await line.reply(202, kind="")
        else:
            await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await made.client.call_tool("t", {})
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [("e-1", -32601)]


async def test_calls_over_event_streams_share_a_connection() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await asyncio.sleep(0.01)
        await line.end()

    async with scripted_http(modern(on_call)) as peer, connected(http(peer.url)) as made:
        for _ in range(5):
            await made.client.call_tool("t", {}, input_schema={})
            await asyncio.sleep(0.05)
        assert peer.connections <= 2


async def test_cookies_are_neither_kept_nor_sent() -> None:
    async def on_call(asked: Asked, line: Line) -> None:
        await line.result(asked, OK, Set_Cookie="track=1")

    async with scripted_http(modern(on_call)) as peer, connected(http(peer.url)) as made:
        for _ in range(2):
            await made.client.call_tool("t", {}, input_schema={})
        assert all("cookie" not in one.headers for one in peer.asked)


async def test_headers_are_asked_for_each_request_and_proxies_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted_http(html) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        tokens = iter(f"s3cret-{n}" for n in range(100))
        spec_headers = lambda: {"Authorization": f"Bearer {next(tokens)}", "Accept": "nothing", "X-Own": "1"}  # noqa: E731  short
        async with scripted_http(modern(lambda asked, line: line.result(asked, OK))) as peer:
            async with connected(http(peer.url, headers=spec_headers)) as made:
                await made.client.call_tool("t", {}, input_schema={})
            assert [one.headers["authorization"] for one in peer.asked] == ["Bearer s3cret-0", "Bearer s3cret-1"]
            assert {one.headers["accept"] for one in peer.asked} == {"application/json, text/event-stream"}
            assert {one.headers["x-own"] for one in peer.asked} == {"1"}
        assert proxy.asked == []
    assert "s3cret" not in caplog.text
    assert "s3cret" not in repr(http("http://x", headers=spec_headers))


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


# -- modern details

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

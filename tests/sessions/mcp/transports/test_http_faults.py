"""When the answer to a call is wrong, cut, hostile or missing, the call fails once and the session continues."""

import asyncio
import gzip
import json
from collections.abc import Callable

import pytest

from sessions.mcp.core.errors import Fault, HttpError, McpError, RpcError, TransportError
from sessions.mcp.core.events import ProtocolViolation

from .held_connections import hold_connections
from .http_answers import ERAS, NO_ANSWERS_OF_A_STREAM, OK, empty, fail_call, html, no_http, reset, rubbish
from .making import connected, http, silent_address, unconnected
from .scripted_http import Asked, Line, Script, legacy, modern, scripted_http

pytestmark = pytest.mark.integration


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
        (403, Fault.ACCESS_REFUSED, False),
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
    assert error.detail.endswith('The server says: "internal"')
    assert peer.count("tools/call") == 1


async def accepted(asked: Asked, line: Line) -> None:
    await line.reply(202, kind="")


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
    await line.event(text='data: {"jsonrpc":"2.0","result":nothing}')


async def bomb(asked: Asked, line: Line) -> None:
    await line.reply(200, gzip.compress(b" " * 30_000_000), Content_Encoding="gzip")


async def brotli(asked: Asked, line: Line) -> None:
    await line.reply(200, b"\x0b\x02\x80{}\x03", Content_Encoding="br")


async def foreign_id(asked: Asked, line: Line) -> None:
    await line.json({"jsonrpc": "2.0", "id": "somebody-else", "result": {}})


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


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("data", NO_ANSWERS_OF_A_STREAM)
async def test_an_event_that_cannot_be_an_answer_is_reported_and_the_answer_after_it_is_taken(
    era: Callable[..., Script], data: str
) -> None:
    async def noisy(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(text=f"data: {data}")
        await line.event({"jsonrpc": "2.0", "id": asked.id, "result": OK})
        await line.end()

    async with scripted_http(era(noisy)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        assert len(made.of(ProtocolViolation)) == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_with_our_id_as_a_string_is_taken_and_told(era: Callable[..., Script], streamed: bool) -> None:
    async def string_id(asked: Asked, line: Line) -> None:
        answer = {"jsonrpc": "2.0", "id": str(asked.id), "result": OK}
        if not streamed:
            await line.json(answer)
            return
        await line.stream()
        await line.event(answer)
        await line.end()

    async with scripted_http(era(string_id)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
        (violation,) = made.of(ProtocolViolation)
    assert violation.detail == "The server returned the id of our request as a string instead of a number."


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("identity", [{}, {"id": None}])
async def test_an_error_without_an_id_answers_the_request_that_it_came_for(
    era: Callable[..., Script], streamed: bool, identity: dict[str, None]
) -> None:
    async def refuse(asked: Asked, line: Line) -> None:
        answer = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "bad token"}, **identity}
        if not streamed:
            await line.json(answer)
            return
        await line.stream()
        await line.event(answer)
        await line.end()

    error, _ = await fail_call(era(refuse))
    assert isinstance(error, RpcError)
    assert (error.code, error.message, error.http_status) == (-32602, "bad token", None)


async def test_a_stream_that_ends_without_an_answer_says_what_could_not_be_read() -> None:
    async def only_noise(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.event(text='data: {"done":true}')
        await line.end()

    error, _ = await fail_call(legacy(only_noise))
    assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert error.detail == (
        "The server ended the stream without an answer. "
        'The server sent a message that is not valid JSON-RPC: no "jsonrpc":"2.0".'
    )


async def test_a_body_that_cannot_be_an_answer_is_named() -> None:
    async def rest(asked: Asked, line: Line) -> None:
        await line.json({"status": "up"})

    error, _ = await fail_call(legacy(rest))
    assert error.detail == 'The server sent a message that is not valid JSON-RPC: no "jsonrpc":"2.0".'


async def streamed_as_json(asked: Asked, line: Line) -> None:
    message = json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": OK})
    await line.reply(200, f"event: message\ndata: {message}\n\n".encode(), "application/json")


async def json_as_stream(asked: Asked, line: Line) -> None:
    await line.reply(200, json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": OK}).encode(), "text/event-stream")


def as_media(media: str) -> Script:
    async def answer(asked: Asked, line: Line) -> None:
        await line.reply(200, json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": OK}).encode(), media)

    return answer


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (streamed_as_json, "an event stream, but its content type is application/json"),
        (json_as_stream, "JSON, but its content type is text/event-stream"),
        (as_media("text/plain; charset=utf-8"), "an MCP message, but its content type is text/plain"),
        (as_media("application/json-rpc"), "an MCP message, but its content type is application/json-rpc"),
        (as_media("application/octet-stream"), "an MCP message, but its content type is application/octet-stream"),
    ],
)
async def test_a_body_that_is_not_what_its_content_type_says_is_named(
    era: Callable[..., Script], answer: Script, words: str
) -> None:
    error, peer = await fail_call(era(answer))
    assert (error.fault, error.may_have_run) == (Fault.INVALID_MESSAGE, True)
    assert error.detail.startswith(f"The response body is {words}")
    assert peer.count("tools/call") == 1


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("reason", [b"", b" ", b" \xe9t\xe9", " 成功".encode(), b" \xff\xfe"])
async def test_an_answer_is_read_whatever_its_reason_phrase_is(era: Callable[..., Script], reason: bytes) -> None:
    async def answer(asked: Asked, line: Line) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": OK}).encode()
        head = b"HTTP/1.1 200%b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (reason, len(body))
        await line.raw(head + body)

    async with scripted_http(era(answer)) as peer, connected(http(peer.url)) as made:
        assert (await made.client.call_tool("t", {})).raw == OK
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


async def fine(asked: Asked, line: Line) -> None:
    await line.result(asked, OK)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_had_no_connection_at_its_deadline_certainly_did_not_run(
    era: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_http(era(fine)) as peer, connected(http(peer.url)) as made:
        held = hold_connections(monkeypatch)
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("t", {}, timeout=0.2, input_schema={})
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, False)
        assert caught.value.detail == "tools/call could not be sent in time (0.2 s)."
        held.let.set()
        await made.client.ping()
        assert peer.count("tools/call") == 0
        assert peer.count("notifications/cancelled") == 0


async def test_a_call_that_waits_for_its_connection_when_the_session_ends_is_never_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_http(legacy(fine, session="s")) as peer, connected(http(peer.url)) as made:
        held = hold_connections(monkeypatch)
        calling = asyncio.create_task(made.client.call_tool("t", {}))
        assert await held.wanted.get() == "POST"
        closing = asyncio.create_task(made.client.close())
        assert await held.wanted.get() == "DELETE"
        held.let.set()
        await closing
        with pytest.raises(McpError) as caught:
            await calling
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.CLOSED, False)
        assert peer.count("DELETE") == 1
        assert peer.count("tools/call") == 0


class SlowTokens:
    """An authorization that has a token for each request at first, and then for none."""

    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.there.set()

    def trial(self, operation: str, *, interactive: bool = True) -> "SlowTokens":
        return self

    async def headers(self, verb: str, url: str) -> dict[str, str]:
        await self.there.wait()
        return {"Authorization": "Bearer t"}

    async def refused(self, refusal: object) -> bool:
        return False

    def answered(self, dpop_nonce: str) -> None:
        """Nothing changes."""

    async def settle(self) -> None:
        """Nothing is pending."""


async def test_a_call_that_waits_for_its_token_until_its_deadline_certainly_did_not_run() -> None:
    tokens = SlowTokens()
    async with scripted_http(legacy(fine)) as peer, connected(http(peer.url, authorization=tokens)) as made:
        tokens.there.clear()
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("t", {}, timeout=0.2)
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, False)
        tokens.there.set()
        assert peer.count("tools/call") == 0


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
        # The first call may use the kept connection that the peer has just closed.
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
    with silent_address() as (host, port):
        client = unconnected(http(f"http://{host}:{port}/mcp", connect_timeout=0.3))
        with pytest.raises(TransportError) as caught:
            await client.connect((lambda step: None) if look_first else None)
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, False)


async def test_a_list_whose_empty_cursor_the_server_itself_refuses_is_the_whole_list() -> None:
    inner = legacy(lambda asked, line: line.result(asked, OK))

    async def script(asked: Asked, line: Line) -> None:
        if asked.method != "tools/list":
            await inner(asked, line)
        elif (asked.message.get("params") or {}).get("cursor") == "":
            await line.error(asked, -32602)
        else:
            await line.result(asked, {"tools": [{"name": "t", "inputSchema": {}}], "nextCursor": ""})

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        listing = await made.client.list_tools()
        assert peer.count("tools/list") == 2
    assert ([tool["name"] for tool in listing.items], listing.truncated) == (["t"], False)
    assert listing.warnings == ["The server ends its list with an empty cursor."]

"""HTTP+SSE (2024-11-05) against scripted peers: the endpoint, the answers to a POST, and how the stream ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, HttpError, McpError, ProtocolError, TransportError
from sessions.mcp.core.events import DiagnosticLine, ProtocolViolation
from sessions.mcp.core.state import State

from .http_answers import NO_ANSWERS_OF_A_STREAM
from .making import SMALL, FlowSecrets, connected, http, unconnected
from .scripted_http import Asked, Line, Peer, scripted_http
from .scripted_sse import ENDPOINT, OK, SseServer, answer_before_the_post_ends

pytestmark = pytest.mark.integration


def sse(url: str, **more: Any) -> Any:
    return http(url, kind="http_sse", **more)


@asynccontextmanager
async def session(server: SseServer, **more: Any) -> AsyncIterator[tuple[FlowSecrets, Peer]]:
    async with scripted_http(server.script) as peer, connected(sse(peer.url, limits=SMALL), **more) as made:
        yield made, peer


async def refusal(server: SseServer, **more: Any) -> tuple[McpError, Peer]:
    """The error of opening a session with this server, and the peer."""
    async with scripted_http(server.script) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(sse(peer.url, **more)).connect()
    return caught.value, peer


async def failed_call(made: FlowSecrets) -> McpError:
    with pytest.raises(McpError) as caught:
        await made.client.call_tool("t", {})
    assert made.client.in_flight == 0
    return caught.value


async def test_a_session_opens_with_one_get_and_one_handshake_and_is_never_probed() -> None:
    server = SseServer()
    async with session(server) as (made, peer):
        assert (made.connected.transport, made.connected.revision) == ("http_sse", "2024-11-05")
        assert (await made.client.call_tool("t", {})).raw == OK
        assert [tool["name"] for tool in (await made.client.list_tools()).items] == ["t"]
        assert peer.methods()[:3] == ["GET", "initialize", "notifications/initialized"]
        assert all(asked.path == ENDPOINT for asked in peer.asked if asked.verb == "POST")
        assert made.connected.url == peer.url


async def test_the_headers_of_the_server_go_with_the_stream_and_with_every_message() -> None:
    async with scripted_http(SseServer().script) as peer:
        spec = sse(peer.url, headers=lambda: {"Authorization": "Bearer b"})
        async with connected(spec) as made:
            await made.client.ping()
    assert {asked.headers["authorization"] for asked in peer.asked} == {"Bearer b"}
    assert not any("mcp-session-id" in asked.headers or "origin" in asked.headers for asked in peer.asked)


async def test_an_answer_that_overtakes_the_end_of_its_post_is_taken() -> None:
    async with session(SseServer(on_call=answer_before_the_post_ends)) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK


async def test_connections_of_messages_are_used_again() -> None:
    async with session(SseServer()) as (made, peer):
        for _ in range(5):
            await made.client.ping()
        assert peer.connections == 2


@pytest.mark.parametrize(
    "elsewhere",
    [
        "http://127.0.0.1:6379/",
        "//localhost:1/messages",
        "https://{host}/messages",
        "http://user:pw@{host}/messages",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://[::1",
    ],
)
async def test_an_endpoint_on_another_origin_is_refused_and_nothing_is_posted(elsewhere: str) -> None:
    server = SseServer()
    async with scripted_http(server.script) as peer:
        server.endpoint = elsewhere.format(host=peer.url.split("/")[2])
        with pytest.raises(ProtocolError) as caught:
            await unconnected(sse(peer.url)).connect()
    assert (caught.value.fault, caught.value.permanent) == (Fault.ENDPOINT_REFUSED, True)
    assert "pw" not in caught.value.detail
    assert peer.methods() == ["GET"]


async def test_an_absolute_endpoint_on_the_same_origin_is_used() -> None:
    server = SseServer()

    async def absolute(asked: Asked, line: Line) -> None:
        server.stream = line
        await line.stream()
        await server.event("endpoint", peer.url.removesuffix("/mcp") + ENDPOINT)
        await line.hang()

    server.on_get = absolute
    async with scripted_http(server.script) as peer, connected(sse(peer.url)) as made:
        assert await made.client.ping() > 0


async def test_a_stream_that_names_no_endpoint_is_given_up_in_time() -> None:
    error, _ = await refusal(SseServer(endpoint=None), connect_timeout=0.2)
    assert (error.fault, error.may_have_run) == (Fault.NO_ENDPOINT, False)
    assert "0.2 s" in error.detail


async def test_a_server_that_never_answers_the_get_is_given_up_in_time() -> None:
    server = SseServer()

    async def silent(asked: Asked, line: Line) -> None:
        await line.hang()

    server.on_get = silent
    error, peer = await refusal(server, connect_timeout=0.2)
    assert error.fault is Fault.TIMEOUT
    await asyncio.wait_for(peer.hung_up.wait(), 10)


async def test_a_stream_that_begins_with_a_message_is_no_endpoint_of_this_transport() -> None:
    server = SseServer()

    async def message_first(asked: Asked, line: Line) -> None:
        server.stream = line
        await line.stream()
        await server.message({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
        await line.hang()

    server.on_get = message_first
    error, _ = await refusal(server)
    assert error.fault is Fault.NO_ENDPOINT
    assert "message" in error.detail


async def test_a_greeting_of_another_name_may_come_before_the_endpoint() -> None:
    server = SseServer()

    async def greeting(asked: Asked, line: Line) -> None:
        server.stream = line
        await line.stream()
        await server.event("ping", "1")
        await server.event("endpoint", ENDPOINT)
        await line.hang()

    server.on_get = greeting
    async with session(server) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK
        assert [event.text for event in made.of(DiagnosticLine)] == [
            "The server sent the event 'ping' before its endpoint."
        ]


async def test_a_stream_that_ends_before_it_names_its_endpoint_is_reported_as_such() -> None:
    server = SseServer()

    async def short(asked: Asked, line: Line) -> None:
        await line.stream()
        await line.end()

    server.on_get = short
    error, _ = await refusal(server)
    assert error.fault is Fault.NO_ENDPOINT


@pytest.mark.parametrize(
    ("status", "fault"),
    [(401, Fault.UNAUTHORIZED), (403, Fault.ACCESS_REFUSED), (429, Fault.RATE_LIMITED), (404, Fault.HTTP_STATUS)],
)
async def test_a_refused_stream_tells_the_status(status: int, fault: Fault) -> None:
    server = SseServer()

    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, kind="", WWW_Authenticate='Bearer scope="x"', Retry_After="9")

    server.on_get = refuse
    error, _ = await refusal(server)
    assert isinstance(error, HttpError)
    assert (error.fault, error.status, error.retry_after) == (fault, status, 9.0)
    assert error.challenges == ('Bearer scope="x"',)


async def test_a_page_instead_of_a_stream_is_no_mcp_endpoint() -> None:
    server = SseServer()

    async def page(asked: Asked, line: Line) -> None:
        await line.reply(200, b"<!doctype html>", "text/html")

    server.on_get = page
    error, _ = await refusal(server)
    assert (error.fault, error.permanent) == (Fault.NOT_MCP, True)


@pytest.mark.parametrize("status", [307, 308])
async def test_the_opening_follows_a_redirect_of_the_same_origin_and_keeps_the_last_url(status: int) -> None:
    server = SseServer()

    async def moved(asked: Asked, line: Line) -> None:
        if asked.path == "/sse/":
            await server.open_stream(asked, line)
        else:
            await line.reply(status, kind="", Location="/sse/")

    server.on_get = moved
    async with session(server) as (made, _):
        assert made.connected.url.endswith("/sse/")


@pytest.mark.parametrize(
    ("status", "location"), [(301, "/sse/"), (302, "/sse/"), (307, "http://127.0.0.1:1/"), (307, "/mcp")]
)
async def test_every_other_redirect_of_the_opening_is_refused(status: int, location: str) -> None:
    server = SseServer()

    async def moved(asked: Asked, line: Line) -> None:
        await line.reply(status, kind="", Location=location)

    server.on_get = moved
    error, _ = await refusal(server)
    assert error.fault is Fault.REDIRECTED


@pytest.mark.parametrize(
    ("status", "fault", "may_have_run"),
    [
        (400, Fault.HTTP_STATUS, True),
        (401, Fault.UNAUTHORIZED, False),
        (403, Fault.ACCESS_REFUSED, False),
        (404, Fault.HTTP_STATUS, True),
        (429, Fault.RATE_LIMITED, True),
        (500, Fault.HTTP_STATUS, True),
        (307, Fault.REDIRECTED, True),
    ],
)
async def test_a_refused_post_fails_its_own_request_only_and_is_never_repeated(
    status: int, fault: Fault, may_have_run: bool
) -> None:
    async def refuse(server: SseServer, asked: Asked, line: Line) -> None:
        await line.reply(status, b"internal", "text/plain", Location=ENDPOINT)

    async with session(SseServer(on_call=refuse)) as (made, peer):
        error = await failed_call(made)
        assert (error.fault, error.may_have_run) == (fault, may_have_run)
        assert ('The server says: "internal"' in error.detail) is (fault is not Fault.REDIRECTED)
        assert await made.client.ping() > 0
        assert peer.count("tools/call") == 1


async def test_a_second_endpoint_is_not_used_and_is_reported() -> None:
    server = SseServer()
    async with session(server) as (made, peer):
        await server.event("endpoint", "/elsewhere")
        await made.client.ping()
        assert peer.asked[-1].path == ENDPOINT
        assert any("second endpoint" in event.text for event in made.of(DiagnosticLine))


async def drop(server: SseServer, asked: Asked, line: Line) -> None:
    await line.reply(202, b"Accepted", "text/plain")
    assert server.stream is not None
    server.stream.reset()


async def end(server: SseServer, asked: Asked, line: Line) -> None:
    await line.reply(202, b"Accepted", "text/plain")
    assert server.stream is not None
    await server.stream.end()


@pytest.mark.parametrize("ending", [drop, end])
async def test_the_end_of_the_stream_fails_what_is_in_flight_and_loses_the_connection(ending: Any) -> None:
    async with session(SseServer(on_call=ending)) as (made, peer):
        error = await failed_call(made)
        assert isinstance(error, TransportError)
        assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)
        reason = await asyncio.wait_for(asyncio.shield(made.client.closed), 10)
        assert reason is not None
        assert made.client.state is State.DISCONNECTED
        assert peer.count("tools/call") == 1


async def test_an_event_over_the_limit_fails_the_call_by_name() -> None:
    async def huge(server: SseServer, asked: Asked, line: Line) -> None:
        await line.reply(202, b"Accepted", "text/plain")
        await server.answer(asked, {"text": "x" * 200_000})

    async with session(SseServer(on_call=huge)) as (made, _):
        assert (await failed_call(made)).fault is Fault.MESSAGE_LIMIT


@pytest.mark.parametrize("data", NO_ANSWERS_OF_A_STREAM)
async def test_an_event_that_cannot_be_an_answer_is_reported_and_harms_no_call(data: str) -> None:
    async def noisy(server: SseServer, asked: Asked, line: Line) -> None:
        await server.event("message", data)
        await answer_before_the_post_ends(server, asked, line)

    async with session(SseServer(on_call=noisy)) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK
        assert len(made.of(ProtocolViolation)) == 1
        assert await made.client.ping() > 0


async def test_a_body_without_end_under_an_accepted_post_does_not_hold_its_answer_for_long() -> None:
    async def endless(server: SseServer, asked: Asked, line: Line) -> None:
        await line.raw(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n")
        await server.answer(asked, OK)
        await line.hang()

    async with session(SseServer(on_call=endless)) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK


async def test_a_post_that_never_ends_does_not_hold_an_answer_that_is_in() -> None:
    async def held(server: SseServer, asked: Asked, line: Line) -> None:
        await server.answer(asked, OK)
        await line.hang()

    async with session(SseServer(on_call=held)) as (made, _):
        assert (await made.client.call_tool("t", {})).raw == OK


async def test_giving_up_a_call_is_reported_to_the_server_by_a_notification() -> None:
    called = asyncio.Event()

    async def silent(server: SseServer, asked: Asked, line: Line) -> None:
        await line.reply(202, b"Accepted", "text/plain")
        called.set()

    async with session(SseServer(on_call=silent)) as (made, peer):
        call = asyncio.create_task(made.client.call_tool("t", {}))
        await asyncio.wait_for(called.wait(), 10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await made.client.ping()
        assert peer.count("notifications/cancelled") == 1


async def test_the_setting_modern_is_refused_in_words_before_any_message() -> None:
    server = SseServer()
    async with scripted_http(server.script) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(sse(peer.url), era="modern").connect()
    assert caught.value.fault is Fault.INCOMPATIBLE_VERSION
    assert peer.count("initialize") == 0

"""A server that ends a connection without saying so, while the next request is already on its way there."""

import asyncio
from collections.abc import Callable

import pytest

from sessions.mcp.core.errors import Fault, McpError, NotReady
from sessions.mcp.core.session import Outgoing
from sessions.mcp.transports.base import Transport
from sessions.mcp.transports.registry import open_transport

from .http_answers import ERAS, OK, fail_call, reset
from .making import connected, http, unconnected
from .scripted_http import Asked, Line, Script, legacy, scripted_http

pytestmark = pytest.mark.integration


def ending_connections(inner: Script) -> Script:
    """Each connection carries one answer; a further request on it finds the connection ended."""

    async def script(asked: Asked, line: Line) -> None:
        if asked.number > 1:
            raise ConnectionError("the script hangs up")
        await inner(asked, line)

    return script


async def answer(asked: Asked, line: Line) -> None:
    await line.result(asked, OK)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_ends_each_connection_after_its_answer_is_opened_and_each_call_is_sent_once(
    era: Callable[..., Script],
) -> None:
    script = ending_connections(era(answer))
    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        assert (await made.client.list_tools()).truncated is False
        for number in range(3):
            assert (await made.client.call_tool("t", {"n": number})).raw == OK
        assert await made.client.ping() > 0
        assert peer.count("tools/call") == 3


async def test_requests_at_once_are_each_repeated() -> None:
    inner = legacy(answer)
    ended = asyncio.Event()

    async def script(asked: Asked, line: Line) -> None:
        if ended.is_set() and asked.number > 1 and asked.method == "tools/list":
            raise ConnectionError("the script hangs up")
        await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        await asyncio.gather(*(made.client.ping() for _ in range(5)))
        ended.set()
        lists = await asyncio.gather(*(made.client.list_tools() for _ in range(5)))
        assert [[tool["name"] for tool in found.items] for found in lists] == [["t"]] * 5
        assert peer.count("tools/list") > 5


async def test_a_call_whose_connection_ended_is_never_sent_again() -> None:
    async def end(asked: Asked, line: Line) -> None:
        raise ConnectionError("the script hangs up")

    error, peer = await fail_call(legacy(end))
    assert (error.fault, error.may_have_run) == (Fault.CONNECTION_LOST, True)
    assert peer.count("tools/call") == 1


async def test_the_first_connection_that_ends_without_an_answer_is_an_error_at_once() -> None:
    """Nothing suggests that the server had ended it before it read the request."""
    async with scripted_http(reset) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(http(peer.url)).connect()
        assert caught.value.fault is Fault.CONNECTION_LOST
        assert peer.methods() == ["server/discover"]


async def test_a_server_that_ends_the_second_connection_too_is_not_asked_a_third_time() -> None:
    inner = legacy(answer)

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "tools/list":
            raise ConnectionError("the script hangs up")
        await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        with pytest.raises(McpError) as caught:
            await made.client.list_tools()
        assert caught.value.fault is Fault.CONNECTION_LOST
        assert peer.count("tools/list") == 2


async def test_a_request_whose_connection_we_closed_ourselves_fails_as_that_and_is_not_repeated() -> None:
    inner = legacy(answer)
    ours: list[Transport] = []

    async def script(asked: Asked, line: Line) -> None:
        if asked.method == "ping":
            await ours[0].close()
            raise ConnectionError("the script hangs up")
        await inner(asked, line)

    async with scripted_http(script) as peer, connected(http(peer.url)) as made:
        ours.append(made.client._requester.pump.transport)
        with pytest.raises(McpError) as caught:
            await made.client.ping()
        assert caught.value.fault is Fault.CONNECTION_LOST
        assert peer.count("ping") == 1
        with pytest.raises(NotReady, match="closed before the request was sent"):
            await ours[0].send(Outgoing(b"{}", "ping", 99))


async def test_a_transport_that_was_closed_before_its_first_request_opens_no_connection() -> None:
    async with scripted_http(legacy(answer)) as peer:
        unused = await open_transport(http(peer.url), kind="streamable_http")
        await unused.close()
        with pytest.raises(NotReady, match="closed before the request was sent"):
            await unused.send(Outgoing(b"{}", "ping", 1))
        assert peer.methods() == []

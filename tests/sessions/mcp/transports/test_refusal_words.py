"""On every HTTP transport, a refusal keeps the server's own message and says which credential or host is the cause."""

import asyncio
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, HttpError, McpError
from sessions.mcp.transports.registry import Spec, WebSocketSpec

from .making import LOCAL, connected, http, unconnected
from .scripted_http import Asked, Line, Script, legacy, scripted_http

pytestmark = pytest.mark.integration

REFUSALS = [
    (400, b"Session store is down", "text/plain", "Session store is down"),
    (401, b'{"detail":"Key expired"}', "application/json", "Key expired"),
    (402, b"Plan exhausted", "text/plain", "Plan exhausted"),
    (403, b"<h1>Blocked by the firewall</h1>", "text/html", "Blocked by the firewall"),
    (421, b"Invalid Host header", "text/plain", "Invalid Host header"),
    (429, b'{"error":{"message":"10 calls a minute"}}', "application/json", "10 calls a minute"),
    (503, b"upstream connect error", "text/plain", "upstream connect error"),
]


@pytest.fixture(params=["streamable_http", "http_sse", "websocket"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def spec(kind: str, url: str, **more: Any) -> Spec:
    if kind == "websocket":
        return WebSocketSpec(url.replace("http", "ws", 1), **{"policy": LOCAL, **more})
    return http(url, kind=kind, **more)


def refusing(status: int, body: bytes, media: str, **headers: str) -> Script:
    async def refuse(asked: Asked, line: Line) -> None:
        await line.reply(status, body, media, **headers)

    return refuse


async def refused(kind: str, script: Script, **more: Any) -> McpError:
    async with scripted_http(script) as peer:
        with pytest.raises(McpError) as caught:
            await unconnected(spec(kind, peer.url, **more)).connect()
        return caught.value


@pytest.mark.parametrize(("status", "body", "media", "words"), REFUSALS, ids=[str(one[0]) for one in REFUSALS])
async def test_a_refused_opening_ends_with_the_servers_own_words(
    kind: str, status: int, body: bytes, media: str, words: str
) -> None:
    error = await refused(kind, refusing(status, body, media))
    assert isinstance(error, HttpError)
    assert error.status == status
    assert f'The server says: "{words}"' in error.detail


@pytest.mark.parametrize(("status", "body", "media", "words"), REFUSALS, ids=[str(one[0]) for one in REFUSALS])
async def test_a_refused_call_ends_with_the_servers_own_words(status: int, body: bytes, media: str, words: str) -> None:
    async with scripted_http(legacy(refusing(status, body, media))) as peer, connected(http(peer.url)) as made:
        with pytest.raises(HttpError) as caught:
            await made.client.call_tool("t", {})
    assert f'The server says: "{words}"' in caught.value.detail


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'""'])
async def test_a_refusal_whose_body_is_empty_json_quotes_nothing(kind: str, body: bytes) -> None:
    error = await refused(kind, refusing(403, body, "application/json"))
    assert error.fault is Fault.ACCESS_REFUSED
    assert "The server says" not in error.detail


async def test_a_403_to_a_request_without_a_credential_is_no_question_of_its_rights(kind: str) -> None:
    error = await refused(kind, refusing(403, b"go away", "text/plain"))
    assert error.fault is Fault.ACCESS_REFUSED
    assert "carried no credential" in error.detail


async def test_a_403_to_a_request_with_a_credential_mentions_it(kind: str) -> None:
    more = {"headers": lambda: {"X-Key": "k"}, "credential": True}
    error = await refused(kind, refusing(403, b"go away", "text/plain"), **more)
    assert error.fault is Fault.FORBIDDEN


async def test_a_key_asked_for_in_words_is_recognised(kind: str) -> None:
    error = await refused(kind, refusing(401, b'{"error":"Missing API key. Send X-Acme-Key."}', "application/json"))
    assert error.fault is Fault.KEY_NEEDED
    assert "X-Acme-Key" in error.detail


async def test_a_body_that_never_ends_does_not_delay_the_refusal() -> None:
    async def trickle(asked: Asked, line: Line) -> None:
        await line.raw(b"HTTP/1.1 403 No\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        await line.chunk(b"Invalid Origin header")
        await line.hang()

    async with asyncio.timeout(20):
        error = await refused("streamable_http", trickle)
    assert error.fault is Fault.ORIGIN_REFUSED
    assert "Invalid Origin header" in error.detail


async def test_a_refused_host_is_not_taken_for_an_older_server() -> None:
    """Otherwise the client would also try HTTP+SSE on a guard that answers 400."""
    async with scripted_http(refusing(400, b"Invalid host header", "text/plain")) as peer:
        with pytest.raises(HttpError) as caught:
            await unconnected(http(peer.url)).connect()
        assert peer.methods() == ["server/discover"]
    assert caught.value.fault is Fault.HOST_REFUSED


async def test_what_was_sent_is_noted_only_when_it_left(kind: str) -> None:
    """A credential that never reached a server does not count as used."""
    sent: list[bool] = []
    async with scripted_http(refusing(403, b"no", "text/plain")) as peer:
        answering = spec(kind, peer.url, sent=sent.append)
        with pytest.raises(HttpError):
            await unconnected(answering).connect()
        assert sent == [False]
    with pytest.raises(McpError):
        await unconnected(answering).connect()  # nothing listens there any more
    assert sent == [False]

"""HTTP+SSE and WebSocket against real servers: detected, opened and used."""

from collections.abc import Iterator

import pytest

from sessions.mcp.transports.registry import WebSocketSpec
from tests.peers.peers import start_peer

from .making import LOCAL, FlowSecrets, connected, http

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def sdk1() -> Iterator[str]:
    """The base URL of one process with every transport of the Python SDK 1.x."""
    peer = start_peer("sdk1", "all")
    yield peer.url.removesuffix("/mcp")
    peer.stop()


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    peer = start_peer("everything", "sse")
    yield peer.url.removesuffix("/mcp").removesuffix("/sse")
    peer.stop()


async def used(made: FlowSecrets, echo: dict[str, str]) -> None:
    assert (await made.client.list_tools()).items
    result = await made.client.call_tool("echo", echo)
    assert "grüße" in result.content[0]["text"]
    assert await made.client.ping() > 0


@pytest.mark.parametrize("kind", ["auto", "http_sse"])
async def test_a_python_server_over_http_and_sse_is_found_and_used(kind: str, sdk1: str) -> None:
    async with connected(http(f"{sdk1}/sse", kind=kind)) as made:
        assert (made.connected.transport, made.connected.era) == ("http_sse", "legacy")
        assert made.connected.url == f"{sdk1}/sse"
        await used(made, {"text": "grüße"})
    async with connected(http(f"{sdk1}/sse"), remembered=made.connected.remember) as again:
        assert again.connected.transport == "http_sse"
        await used(again, {"text": "grüße"})


@pytest.mark.parametrize("kind", ["auto", "http_sse"])
async def test_server_everything_over_http_and_sse_is_found_and_used(kind: str, everything: str) -> None:
    async with connected(http(f"{everything}/sse", kind=kind)) as made:
        assert (made.connected.transport, made.connected.era) == ("http_sse", "legacy")
        await used(made, {"message": "grüße"})


async def test_a_python_server_over_websocket_is_probed_initialized_and_used(sdk1: str) -> None:
    url = sdk1.replace("http://", "ws://") + "/ws"
    async with connected(WebSocketSpec(url, policy=LOCAL)) as made:
        assert (made.connected.transport, made.connected.revision) == ("websocket", "2025-11-25")
        await used(made, {"text": "grüße"})


@pytest.mark.parametrize("face", ["sse", "ws"])
async def test_progress_and_large_answers_pass(face: str, sdk1: str) -> None:
    over_websocket = WebSocketSpec(sdk1.replace("http://", "ws://") + "/ws", policy=LOCAL)
    heard: list[float] = []
    async with connected(over_websocket if face == "ws" else http(f"{sdk1}/sse")) as made:
        await made.client.call_tool(
            "slow", {"steps": 3, "delay": 0.01}, on_progress=lambda done, total, text: heard.append(done)
        )
        assert len(heard) >= 2
        assert heard == sorted(heard)
        result = await made.client.call_tool("big", {"size": 2_000_000})
        assert len(result.content[0]["text"]) >= 2_000_000

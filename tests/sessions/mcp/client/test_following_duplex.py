"""Listen streams over one duplex connection are told apart by their ids and cancelled by a notification."""

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from sessions.mcp.client import listening
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.events import Following, FollowingLost, ListKind, ResourceUpdated
from sessions.mcp.transports.registry import StdioSpec, WebSocketSpec
from tests.sessions.mcp.transports.making import LOCAL, FlowSecrets, connected
from tests.sessions.mcp.transports.scripted_websocket import scripted_websocket

from .feeds import SUBSCRIPTION_ID
from .test_following_modern import listen_tasks
from .waiting import until

pytestmark = pytest.mark.integration

SERVER = StdioSpec(sys.executable, (str(Path(__file__).parent / "servers" / "modern_stdio.py"),))
A, B = "note://a", "note://b"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening.Backoff, "delay", lambda self, retry_after=None: 0.0)
    monkeypatch.setattr(listening, "_OVERLAP", 0.0)


def updated(uri: str, of: Any) -> dict[str, Any]:
    return {"method": "notifications/resources/updated", "params": {"uri": uri, "_meta": {SUBSCRIPTION_ID: of}}}


async def send(made: FlowSecrets, *messages: dict[str, Any]) -> None:
    await made.client.call_tool("send", {"messages": list(messages)})


async def seen(made: FlowSecrets) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((await made.client.call_tool("seen", {})).content[0]["text"])
    return value


async def test_what_the_server_does_not_agree_to_is_named() -> None:
    async with connected(SERVER) as made:
        honoured = await made.client.follow([A, "note://no"], [ListKind.TOOLS])
        assert (honoured.resources, honoured.lists) == ({A}, {ListKind.TOOLS})
        assert honoured.refused.keys() == {"note://no"}


async def test_the_old_stream_is_cancelled_after_the_new_one_was_acknowledged() -> None:
    async with connected(SERVER) as made:
        await made.client.follow([A])
        await made.client.follow([A, B])
        await until(lambda: len(listen_tasks()) == 1)
        told = await seen(made)
        first, second = (listened["id"] for listened in told["listened"])
        assert told["cancelled"] == [first]
        await send(made, updated(A, first), updated(B, second))
        assert made.of(ResourceUpdated) == [ResourceUpdated(B)]
        assert made.client.late_notifications == 1
        assert len(listen_tasks()) == 1


async def test_what_was_sent_to_the_old_stream_alone_is_heard_after_the_acknowledgement_of_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_OVERLAP", 60.0)
    async with connected(SERVER) as made:
        await made.client.follow([A])
        await made.client.follow([A, B])
        told = await seen(made)
        await send(made, updated(A, told["listened"][0]["id"]))
        assert made.of(ResourceUpdated) == [ResourceUpdated(A)]
        assert told["cancelled"] == []


@pytest.mark.parametrize("wording", ["result", "cancelled"])
async def test_a_stream_that_the_server_ends_in_order_is_opened_again(wording: str) -> None:
    async with connected(SERVER) as made:
        await made.client.follow([A])
        (first,) = (listened["id"] for listened in (await seen(made))["listened"])
        if wording == "result":
            end: dict[str, Any] = {"id": first, "result": {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: first}}}
        else:
            end = {"method": "notifications/cancelled", "params": {"requestId": first}}
        await send(made, end)
        await until(lambda: len(made.of(Following)) == 2)
        told = await seen(made)
        assert len(told["listened"]) == 2
        assert told["cancelled"] == []
        await send(made, updated(A, told["listened"][1]["id"]))
        assert made.of(ResourceUpdated) == [ResourceUpdated(A)]


async def test_a_cancellation_of_what_is_no_listen_request_ends_nothing() -> None:
    async with connected(SERVER) as made:
        await made.client.follow([A])
        foreign = [{"method": "notifications/cancelled", "params": {"requestId": one}} for one in (1, "x", None, [])]
        await send(made, *foreign)
        assert not made.of(FollowingLost)
        assert len(listen_tasks()) == 1


async def test_a_server_that_ends_ends_the_stream_with_the_session() -> None:
    async with connected(SERVER) as made:
        await made.client.follow([A])
        with pytest.raises(McpError):
            await made.client.call_tool("exit", {})
        await made.client.closed
        await until(lambda: not listen_tasks())
        assert not made.of(FollowingLost)
        with pytest.raises(McpError):
            await made.client.follow([B])


async def test_a_log_level_travels_with_requests_but_not_with_the_listen_request() -> None:
    async with connected(SERVER) as made:
        await made.client.set_log_level("warning")
        await made.client.follow([A])
        meta = json.loads((await made.client.call_tool("meta", {})).content[0]["text"])
        assert meta["io.modelcontextprotocol/logLevel"] == "warning"
        assert "io.modelcontextprotocol/logLevel" not in (await seen(made))["listened"][0]["meta"]
        await made.client.set_log_level(None)
        meta = json.loads((await made.client.call_tool("meta", {})).content[0]["text"])
        assert "io.modelcontextprotocol/logLevel" not in meta


async def test_a_websocket_carries_the_stream_like_any_other_duplex_connection() -> None:
    capabilities = {"resources": {"subscribe": True}}

    async def on_message(connection: ServerConnection, message: dict[str, Any]) -> bool:
        method, identity = message.get("method"), message.get("id")
        if method == "server/discover":
            answer: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
            await connection.send(json.dumps({"jsonrpc": "2.0", "id": identity, "result": answer}))
            return True
        if method == "subscriptions/listen":
            told = {"notifications": message["params"]["notifications"], "_meta": {SUBSCRIPTION_ID: identity}}
            note = {"method": "notifications/subscriptions/acknowledged", "params": told}
            await connection.send(json.dumps({"jsonrpc": "2.0", **note}))
            await connection.send(json.dumps({"jsonrpc": "2.0", **updated(A, identity)}))
            return True
        return False

    async with AsyncExitStack() as life:
        peer = await life.enter_async_context(scripted_websocket(on_message, modern=True))
        made = await life.enter_async_context(connected(WebSocketSpec(peer.url, policy=LOCAL)))
        assert (await made.client.follow([A])).resources == {A}
        await until(lambda: made.of(ResourceUpdated))
        await made.client.follow([])
        await until(lambda: "notifications/cancelled" in peer.methods())
        listen = next(message for message in peer.messages if message.get("method") == "subscriptions/listen")
        assert peer.messages[-1]["params"]["requestId"] == listen["id"]

"""Opening, using and closing a connection releases every descriptor, task and thread, even when it fails."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.mcp.core.errors import McpError
from sessions.mcp.transports.registry import Spec
from tests.sessions.cycling import older_objects_stay  # noqa: F401  a fixture

from .making import connected, http, unconnected
from .scripted_http import scripted_http
from .scripted_sse import SseServer
from .scripted_websocket import scripted_websocket
from .test_websocket import ws

pytestmark = pytest.mark.integration

CYCLES = 8


def held() -> tuple[int, int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), threading.active_count()


async def settled(before: tuple[int, int, int]) -> tuple[int, int, int]:
    """The resources held once the peers have noticed the last closings."""
    for _ in range(100):
        if held() <= before:
            break
        await asyncio.sleep(0.02)
    return held()


@asynccontextmanager
async def sse() -> AsyncIterator[Callable[..., Spec]]:
    async with scripted_http(SseServer().script) as peer:
        yield lambda **more: http(peer.url, kind="http_sse", **more)


@asynccontextmanager
async def found_sse() -> AsyncIterator[Callable[..., Spec]]:
    """Detection opens two transports for each session."""
    async with scripted_http(SseServer().script) as peer:
        yield lambda **more: http(peer.url, **more)


@asynccontextmanager
async def websocket() -> AsyncIterator[Callable[..., Spec]]:
    async with scripted_websocket() as peer:
        yield lambda **more: ws(peer.url, **more)


@asynccontextmanager
async def no_endpoint() -> AsyncIterator[Callable[..., Spec]]:
    async with scripted_http(SseServer(endpoint="http://elsewhere.test/").script) as peer:
        yield lambda **more: http(peer.url, kind="http_sse", **more)


@asynccontextmanager
async def refused_handshake() -> AsyncIterator[Callable[..., Spec]]:
    async with scripted_websocket(on_handshake=lambda request: (401, {})) as peer:
        yield lambda **more: ws(peer.url, **more)


async def use(spec: Spec) -> None:
    async with connected(spec) as made:
        await made.client.call_tool("t", {})


async def fail(spec: Spec) -> None:
    with pytest.raises(McpError):
        await unconnected(spec).connect()


async def cancel(spec: Spec) -> None:
    """Cancel in the middle of opening, at whatever point that is."""
    opening = asyncio.create_task(unconnected(spec).connect())
    for _ in range(6):
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises((asyncio.CancelledError, McpError)):
        await opening


@pytest.mark.parametrize(
    ("server", "act"),
    [
        pytest.param(sse, use, id="sse"),
        pytest.param(found_sse, use, id="found-sse"),
        pytest.param(websocket, use, id="websocket"),
        pytest.param(no_endpoint, fail, id="sse-refused"),
        pytest.param(refused_handshake, fail, id="websocket-refused"),
        pytest.param(sse, cancel, id="sse-cancelled"),
        pytest.param(websocket, cancel, id="websocket-cancelled"),
    ],
)
async def test_sessions_leave_nothing_behind(server: Any, act: Any) -> None:
    async with server() as make:
        for _ in range(3):
            await act(make())  # creates what the process creates only once
        before = await settled(held())
        for _ in range(2):
            for _ in range(CYCLES):
                await act(make())
            after = await settled(before)
            if after <= before:
                break
            before = after  # a thread of an earlier test may start something once, but not in both rounds
        else:
            pytest.fail(f"{CYCLES} sessions left something behind, twice: {after}")

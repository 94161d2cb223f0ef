"""An answer that is here when its caller is cancelled, or when its time is over, counts."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions.mcp.client.pump import Pump, RequestSpec
from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.session import Outgoing, Session
from sessions.mcp.core.versions import REVISIONS

LONG = 60.0


class Wire:
    """A transport. `after_sending` is what it still does with a request that has left."""

    kind, exchange = "streamable_http", True

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Outgoing] = asyncio.Queue()
        self.after_sending: Callable[[], Awaitable[object]] | None = None

    async def send(self, outgoing: Outgoing) -> None:
        outgoing.left = True
        self.sent.put_nowait(outgoing)
        if self.after_sending is not None:
            await self.after_sending()


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
async def pump(wire: Wire) -> Pump:
    limits = Limits()
    session = Session(Implementation("test", "1", "Test"), {}, limits)
    session.settle(REVISIONS["2025-11-25"])
    pump = Pump(session, limits, lambda event: None, lambda error: None)
    pump.attach(wire)  # type: ignore[arg-type]  # the part of a transport that the pump uses
    return pump


def call(seconds: float = LONG) -> RequestSpec:
    return RequestSpec("tools/call", {"name": "echo"}, seconds, seconds)


def answer(pump: Pump, request: Outgoing) -> None:
    pump.message(json.dumps({"jsonrpc": "2.0", "id": request.id, "result": {"content": []}}).encode(), request)


async def test_an_answer_that_came_before_the_cancellation_counts(pump: Pump, wire: Wire) -> None:
    task = asyncio.create_task(pump.exchange(call()))
    answer(pump, await wire.sent.get())
    task.cancel()
    assert (await task)[1] == {"content": []}


async def test_an_answer_counts_although_the_transport_still_cleans_up_when_the_call_is_cancelled(
    pump: Pump, wire: Wire
) -> None:
    wire.after_sending = asyncio.Event().wait
    task = asyncio.create_task(pump.exchange(call()))
    answer(pump, await wire.sent.get())
    await asyncio.sleep(0)
    task.cancel()
    assert (await task)[1] == {"content": []}


async def test_an_answer_counts_although_the_transport_still_cleans_up_when_the_time_is_over(
    pump: Pump, wire: Wire
) -> None:
    async def answered() -> None:
        answer(pump, wire.sent.get_nowait())
        await asyncio.Event().wait()

    wire.after_sending = answered
    assert (await pump.exchange(call(0.05)))[1] == {"content": []}


async def test_who_goes_on_after_the_answer_is_cancelled_where_it_waits_next(pump: Pump, wire: Wire) -> None:
    """A task that asks again and again would otherwise never end."""
    results: list[Any] = []

    async def asking() -> None:
        while True:
            results.append(await pump.exchange(call()))

    task = asyncio.create_task(asking())
    answer(pump, await wire.sent.get())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(results) == 1


async def test_a_time_limit_around_an_answered_request_cancels_nothing_after_it(pump: Pump, wire: Wire) -> None:
    limit = asyncio.timeout(None)

    async def limited() -> str:
        async with limit:
            await pump.exchange(call())
        for _ in range(5):
            await asyncio.sleep(0)
        return "went on"

    task = asyncio.create_task(limited())
    request = await wire.sent.get()
    limit.reschedule(0)
    answer(pump, request)
    assert await task == "went on"


async def test_without_an_answer_a_call_is_cancelled_and_ends_in_time(pump: Pump, wire: Wire) -> None:
    task = asyncio.create_task(pump.exchange(call()))
    await wire.sent.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(McpError) as error:
        await pump.exchange(call(0.01))
    assert error.value.fault is Fault.TIMEOUT

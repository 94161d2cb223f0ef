"""Messages to and from a child: limits, deadlines, cancellation, floods."""

import asyncio
import json

import pytest

from sessions.mcp.core.errors import Fault, ProtocolError, TransportError
from sessions.mcp.core.events import (
    EventsDropped,
    LateAnswer,
    ListChanged,
    LogMessage,
    ProtocolViolation,
    RequestRefused,
)
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.state import State

from .http_answers import NO_ANSWERS
from .making import SMALL, connected, script
from .stdio_calls import call, text

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("tool", ["oversized", "oversized-id-last"])
async def test_a_result_over_the_limit_fails_its_call_alone(tool: str) -> None:
    async with connected(script("server", limits=SMALL)) as made:
        other = asyncio.create_task(made.client.call_tool("sleep", {"seconds": 0.3}))
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool(tool, {"bytes": 200_000})
        assert len(made.of(ProtocolViolation)) == 1
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.MESSAGE_LIMIT, True)
        assert text(await other) == "slept"
        assert await call(made, "echo", text="still here") == "still here"


async def test_a_message_over_the_limit_that_names_no_request_ends_the_session() -> None:
    async with connected(script("server", limits=SMALL)) as made:
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("anonymous-oversized", {"bytes": 200_000})
        assert caught.value.fault is Fault.MESSAGE_LIMIT
        reason = await made.client.closed
        assert reason is not None
        assert reason.fault is Fault.MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":1,"a":2}}', Fault.INVALID_MESSAGE),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":NaN}}', Fault.INVALID_MESSAGE),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":"\xff"}}', Fault.INVALID_MESSAGE),
        ('{"jsonrpc":"2.0","id":ID,"result":{"a":' + "[" * 5000 + "]" * 5000 + "}}", Fault.DEPTH_LIMIT),
        ('{"jsonrpc":"2.0","id":ID,"result":"no object"}', Fault.INVALID_MESSAGE),
    ],
)
async def test_an_unreadable_answer_fails_its_call_at_once_and_alone(line: str, fault: Fault) -> None:
    async with connected(script("server")) as made:
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("broken", {"line": line})
        assert (caught.value.fault, caught.value.may_have_run) == (fault, True)
        assert made.of(ProtocolViolation)
        assert await call(made, "echo", text="alive") == "alive"


async def test_what_an_unreadable_error_says_is_in_the_failure_of_its_call_and_in_no_event() -> None:
    async with connected(script("server")) as made:
        with pytest.raises(ProtocolError, match='The server says: "no row 17"'):
            await made.client.call_tool("broken", {"line": '{"jsonrpc":"2.0","id":ID,"error":"no row 17"}'})
        (violation,) = made.of(ProtocolViolation)
    assert violation.detail.endswith("the error is not an object with code and message.")


async def test_an_unreadable_error_that_names_no_request_ends_the_calls_of_everyone_without_its_words() -> None:
    async with connected(script("server")) as made:
        other = asyncio.create_task(made.client.call_tool("sleep", {"seconds": 30}))
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("broken", {"line": '{"jsonrpc":"2.0","error":"no row 17"}'})
        with pytest.raises(ProtocolError) as others:
            await other
        reason = await made.client.closed
    for error in (caught.value, others.value, reason):
        assert error is not None
        assert error.detail.endswith("the error is not an object with code and message.")


@pytest.mark.parametrize("line", NO_ANSWERS)
async def test_a_message_that_cannot_be_an_answer_is_reported_and_harms_no_call(line: str) -> None:
    async with connected(script("server")) as made:
        before = len(made.of(ProtocolViolation))
        other = asyncio.create_task(made.client.call_tool("sleep", {"seconds": 0.1}))
        assert await call(made, "say", lines=[line]) == "said"
        assert text(await other) == "slept"
        assert len(made.of(ProtocolViolation)) == before + ('"jsonrpc"' in line)
        assert made.client.state is State.READY


async def test_a_notification_with_an_id_of_null_is_a_notification() -> None:
    line = '{"jsonrpc":"2.0","id":null,"method":"notifications/tools/list_changed"}'
    async with connected(script("server")) as made:
        assert await call(made, "say", lines=[line]) == "said"
        assert len(made.of(ListChanged)) == 1


async def test_an_unreadable_answer_that_names_no_request_ends_the_session() -> None:
    """It is unknown whose response it was, and that call would wait for nothing."""
    async with connected(script("server")) as made:
        with pytest.raises(ProtocolError) as caught:
            await made.client.call_tool("broken", {"line": '{"jsonrpc":"2.0","id":[ID],"result":{}}'})
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.INVALID_MESSAGE, True)
        reason = await made.client.closed
        assert reason is not None
        assert reason.fault is Fault.INVALID_MESSAGE


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_cancelling_the_task_tells_the_server_which_request(era: str) -> None:
    async with connected(script("server", era)) as made:
        assert made.connected.era == era
        waiting = asyncio.create_task(made.client.call_tool("hang", {}))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert made.client.in_flight == 0
        for _ in range(50):
            cancelled = json.loads(await call(made, "cancelled"))
            if cancelled:
                break
        assert cancelled[0][0] == "cancelled"


async def test_a_call_out_of_time_is_cancelled_at_the_server_and_its_answer_is_late() -> None:
    async with connected(script("server")) as made:
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool("sleep", {"seconds": 0.6}, timeout=0.1, tag="my call")
        assert (caught.value.fault, caught.value.may_have_run) == (Fault.TIMEOUT, True)
        await call(made, "sleep", seconds=0.8)
        assert [kind for kind, _ in json.loads(await call(made, "cancelled"))] == ["cancelled"]
        assert [event.tag for event in made.of(LateAnswer)] == ["my call"]


async def test_progress_keeps_a_call_alive_beyond_its_idle_time_but_not_beyond_the_total() -> None:
    async with connected(script("server")) as made:
        seen: list[float] = []
        result = await made.client.call_tool(
            "progress", {}, timeout=1.0, on_progress=lambda value, total, message: seen.append(value)
        )
        assert text(result) == "done"
        assert seen == [1.0, 2.0, 3.0]
        with pytest.raises(TransportError) as caught:
            await made.client.call_tool(
                "progress", {}, timeout=1.0, total_timeout=0.5, on_progress=lambda value, total, message: None
            )
        assert caught.value.fault is Fault.TOTAL_DEADLINE


async def test_an_intent_that_cannot_be_written_sends_nothing() -> None:
    async def refuse(attempt: int, reason: str) -> None:
        raise RuntimeError("the ledger is locked")

    async with connected(script("server")) as made:
        with pytest.raises(RuntimeError, match="locked"):
            await made.client.call_tool("exit", {}, before_send=refuse)
        assert made.client.in_flight == 0
        assert await call(made, "echo", text="alive") == "alive"


async def test_each_attempt_is_announced_before_its_bytes_leave() -> None:
    attempts: list[tuple[int, str]] = []

    async def note(attempt: int, reason: str) -> None:
        attempts.append((attempt, reason))

    async with connected(script("server")) as made:
        result = await made.client.call_tool("echo", {"text": "x"}, before_send=note)
    assert attempts == [(1, "first")]
    assert result.attempts == 1


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create"])
async def test_what_was_not_declared_is_refused_during_a_call(method: str) -> None:
    async with connected(script("server")) as made:
        reply = json.loads(await call(made, "ask", method=method))
        assert reply["error"]["code"] == -32601
        assert made.of(RequestRefused) == [RequestRefused(method, -32601)]


async def test_a_flood_of_notifications_is_cut_counted_and_harms_no_call() -> None:
    limits = Limits(events_per_second=10, events_burst=20)
    async with connected(script("server", limits=limits)) as made:
        assert await call(made, "flood", lines=5_000) == "flooded"
    logs = len(made.of(LogMessage))
    dropped = sum(event.count for event in made.of(EventsDropped))
    assert 20 <= logs < 1_000
    assert logs + dropped == 5_000


async def test_a_flood_of_stderr_waits_for_us_and_harms_no_call() -> None:
    async with connected(script("server")) as made:
        await call(made, "chatter")
        await asyncio.sleep(2)
        before = int(await call(made, "chattered"))
        await asyncio.sleep(2)
        after = int(await call(made, "chattered"))
    # Without backpressure this would be hundreds of megabytes a second.
    assert 0 < after - before < 16 * 1024 * 1024

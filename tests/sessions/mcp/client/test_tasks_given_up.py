"""Tasks that the client cancels, loses, or resumes after a restart."""

import asyncio

import pytest

from sessions.mcp.core.errors import Fault, McpError
from sessions.mcp.core.tasks import TaskOptions
from tests.sessions.mcp.client.task_server import TaskServer
from tests.sessions.mcp.client.task_setting import Setting, place, setting, text, until_seen
from tests.sessions.mcp.transports.held_connections import hold_connections

__all__ = ["place"]


async def test_cancelling_the_caller_cancels_the_task_and_never_by_notification(place: Setting) -> None:
    began = asyncio.Event()
    options = TaskOptions(on_task=lambda state: began.set())
    calling = asyncio.create_task(place.made.client.call_tool("endless", {}, task=options))
    await began.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert (await until_seen(place, "tasks/cancel"))[0]["params"]["taskId"] == "task-1"
    assert not [
        one
        for one in await place.seen("notifications/cancelled")
        if one["params"]["requestId"] == (await place.seen("tools/call"))[0]["id"]
    ]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("times_out", [False, True])
async def test_a_task_that_is_named_after_its_caller_gave_up_is_cancelled_all_the_same(
    transport: str, times_out: bool
) -> None:
    async with setting("legacy", transport) as here:
        sent = asyncio.Event()

        async def before_send(attempt: int, reason: str) -> None:
            sent.set()

        options = TaskOptions(support="required")
        more = {"timeout": 0.3} if times_out else {}
        calling = asyncio.create_task(
            here.made.client.call_tool("slow", {}, task=options, before_send=before_send, **more)
        )
        await sent.wait()
        if times_out:
            with pytest.raises(McpError) as ended:
                await calling
            assert (ended.value.fault, ended.value.may_have_run) == (Fault.TIMEOUT, True)
        else:
            await asyncio.sleep(0.3)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        assert (await until_seen(here, "tasks/cancel"))[0]["params"]["taskId"] == "task-1"
        assert await here.seen("notifications/cancelled") == []


async def test_a_task_whose_request_had_no_connection_when_its_caller_gave_up_is_never_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with setting("legacy", "http") as here:
        held = hold_connections(monkeypatch)
        with pytest.raises(McpError) as ended:
            await here.made.client.call_tool("endless", {}, task=TaskOptions(support="required"), timeout=0.3)
        assert (ended.value.fault, ended.value.may_have_run) == (Fault.TIMEOUT, False)
        held.let.set()
        await here.seen("tools/call")  # takes as long as the request would need to arrive
        assert [one["params"]["name"] for one in await here.seen("tools/call")] == ["seen", "seen"]


async def test_the_total_time_bounds_a_task_that_keeps_working(place: Setting) -> None:
    with pytest.raises(McpError) as ended:
        await place.made.client.call_tool("endless", {}, total_timeout=0.6)
    assert (ended.value.fault, ended.value.may_have_run) == (Fault.TOTAL_DEADLINE, True)
    assert "asked to cancel it" in ended.value.detail
    assert await until_seen(place, "tasks/cancel")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_lost_connection_ends_the_wait_at_once_and_the_call_may_have_run(era: str) -> None:
    async with setting(era, "stdio") as here:
        with pytest.raises(McpError) as ended:
            await here.made.client.call_tool("dies", {})
        assert (ended.value.fault, ended.value.may_have_run) == (Fault.PROCESS_EXITED, True)


async def test_closing_the_client_ends_the_wait_and_leaves_the_task_to_be_resumed(place: Setting) -> None:
    async with setting(place.era, place.transport, poll=60_000) as here:
        began = asyncio.Event()
        options = TaskOptions(on_task=lambda state: began.set())
        calling = asyncio.create_task(here.made.client.call_tool("endless", {}, task=options))
        await began.wait()
        await here.made.client.close()
        with pytest.raises(McpError) as ended:
            await calling
        assert (ended.value.fault, ended.value.may_have_run) == (Fault.CLOSED, True)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_task_is_resumed_by_another_client_after_a_restart(era: str) -> None:
    server = TaskServer(era)
    async with setting(era, "http", server=server) as here:
        began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        options = TaskOptions(on_task=lambda state: None if began.done() else began.set_result(state.task_id))
        calling = asyncio.create_task(here.made.client.call_tool("quick", {}, task=options))
        task_id = await began
        await here.made.client.close()
        with pytest.raises(McpError):
            await calling
    async with setting(era, "http", server=server) as again:
        result = await again.made.client.resume_task(task_id)
        assert text(result) == "done"
        with pytest.raises(McpError) as lost:
            await again.made.client.resume_task("task-99")
        assert lost.value.fault is Fault.TASK_LOST
        assert not [one for one in server.seen if one.get("method") == "tasks/cancel"]

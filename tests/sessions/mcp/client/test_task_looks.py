"""Polling tasks, listing them, and when a call may become a task."""

import asyncio
import sys
from typing import Any

import pytest

from sessions.mcp.core.errors import Fault, InvalidRequest, ProtocolError, RpcError
from sessions.mcp.core.tasks import Status, TaskOptions
from sessions.mcp.transports.registry import StdioSpec
from tests.sessions.mcp.client.task_server import TaskServer, over_http
from tests.sessions.mcp.client.task_setting import DECLARED, SERVER, Setting, answer, place, setting, text
from tests.sessions.mcp.transports.making import connected, http
from tests.sessions.mcp.transports.scripted_http import scripted_http

__all__ = ["place"]


# -- polling


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_news_of_a_task_shorten_the_wait_for_the_next_look(era: str) -> None:
    """The server sets a poll interval of 60 seconds, so waiting for it would exceed the test's time-out."""
    async with setting(era, "stdio", poll=60_000) as here, asyncio.timeout(30):
        client, began = here.made.client, asyncio.Event()
        calling = asyncio.create_task(
            client.call_tool("tells", {}, task=TaskOptions(on_task=lambda state: began.set()))
        )
        await began.wait()
        # Any poll makes the scripted server announce that the task is over.
        await client.get_task("task-1")
        assert text(await calling) == "done"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_spams_news_does_not_make_us_look_without_pause(era: str) -> None:
    async with setting(era, "stdio", poll=300_000) as here:
        began = asyncio.Event()
        options = TaskOptions(on_task=lambda state: began.set())
        calling = asyncio.create_task(here.made.client.call_tool("spams", {}, task=options))
        await began.wait()
        await here.made.client.get_task("task-1")
        await asyncio.sleep(0.55)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert 2 <= len(await here.seen("tasks/get")) <= 8


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_progress_of_the_call_goes_on_while_its_task_runs(transport: str) -> None:
    async with setting("legacy", transport) as here:
        progress: list[tuple[float, float | None, str | None]] = []
        result = await here.made.client.call_tool("moves", {}, on_progress=lambda *step: progress.append(step))
        assert text(result) == "done"
        assert [step[:2] for step in progress] == [(1.0, 3.0), (2.0, 3.0), (3.0, 3.0)]


async def test_every_request_about_a_task_names_it_in_its_header() -> None:
    """2026-07-28, extension: Mcp-Name is the task id, so that a balancer finds the instance with the task."""
    async with scripted_http(over_http(TaskServer("modern"))) as peer:
        more: dict[str, Any] = {"capabilities": DECLARED, "answers": {"elicitation/create": answer}}
        async with connected(http(peer.url), **more) as made:
            await made.client.call_tool("asks", {})
            await made.client.cancel_task("task-1")
        named = {one.method: one.headers["mcp-name"] for one in peer.asked if one.method.startswith("tasks/")}
        assert named == dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "task-1")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_is_unavailable_for_a_while_keeps_its_task(era: str) -> None:
    server = TaskServer(era)
    async with setting(era, "http", server=server) as here:
        server.__dict__["unavailable"] += ["tasks/get", "tasks/get"]
        assert text(await here.made.client.call_tool("quick", {}, task=TaskOptions())) == "done"


async def test_a_result_whose_stream_broke_is_fetched_again() -> None:
    server = TaskServer("legacy")
    async with setting("legacy", "http", server=server) as here:
        server.__dict__["cut"].append("tasks/result")
        assert text(await here.made.client.call_tool("cut", {})) == "done"
        assert len(await here.seen("tasks/result")) == 2


# -- when a call becomes a task


async def test_a_tool_that_may_be_a_task_is_one_only_when_asked_for_and_one_that_must_be_always_is() -> None:
    async with setting("legacy", "stdio") as here:
        client = here.made.client
        assert (await client.call_tool("quick", {})).content[0]["text"] == "at once"
        assert (await client.call_tool("plain", {}, task=TaskOptions())).content[0]["text"] == "at once"
        assert text(await client.call_tool("quick", {}, task=TaskOptions())) == "done"
        assert text(await client.call_tool("moves", {})) == "done"
        sent = [one["params"].get("task") for one in await here.seen("tools/call")]
        assert sent[:4] == [None, None, {}, {}]
        assert len(await here.seen("tools/list")) == 1


async def test_what_the_caller_knows_of_the_tool_saves_the_listing() -> None:
    async with setting("legacy", "stdio") as here:
        assert text(await here.made.client.call_tool("quick", {}, task=TaskOptions(support="optional"))) == "done"
        assert await here.seen("tools/list") == []


@pytest.mark.parametrize("ttl", [0, -5])
async def test_a_task_without_a_life_is_not_asked_for(ttl: int) -> None:
    async with setting("legacy", "stdio") as here:
        with pytest.raises(InvalidRequest, match="not a valid lifetime"):
            await here.made.client.call_tool("quick", {}, task=TaskOptions(ttl))
        assert await here.seen("tools/call") == [(await here.seen("tools/call"))[0]]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_task_that_no_one_asked_for_is_an_invalid_result(transport: str) -> None:
    async with scripted_http(over_http(TaskServer("modern"))) as peer:
        spec = http(peer.url) if transport == "http" else StdioSpec(sys.executable, (SERVER, "modern"))
        async with connected(spec) as made:
            with pytest.raises(ProtocolError) as refused:
                await made.client.call_tool("quick", {})
            assert refused.value.fault is Fault.INVALID_RESULT
            with pytest.raises(InvalidRequest, match="did not declare") as unoffered:
                await made.client.resume_task("task-1")
            assert unoffered.value.fault is Fault.NOT_OFFERED


async def test_tasks_are_listed_over_all_pages_and_what_is_no_task_becomes_a_warning() -> None:
    async with setting("legacy", "stdio") as here:
        client = here.made.client
        for _ in range(3):
            await client.call_tool("quick", {}, task=TaskOptions())
        listing = await client.list_tasks()
        assert [state.task_id for state in listing.items] == ["task-1", "task-2", "task-3"]
        assert any("meditating" in warning for warning in listing.warnings)
        assert listing.limited_by is None


async def test_a_task_is_looked_at_and_cancelled_by_its_id(place: Setting) -> None:
    client = place.made.client
    await client.call_tool("quick", {}, task=TaskOptions())
    assert (await client.get_task("task-1")).status is Status.COMPLETED
    cancelled = await client.cancel_task("task-1")
    assert (cancelled.status if cancelled else None) == (None if place.era == "modern" else Status.CANCELLED)
    with pytest.raises(RpcError):
        await client.cancel_task("task-99")


async def test_a_modern_server_has_no_list_of_tasks_and_is_not_asked_for_one() -> None:
    async with setting("modern", "stdio") as here:
        with pytest.raises(InvalidRequest) as unoffered:
            await here.made.client.list_tasks()
        assert unoffered.value.fault is Fault.NOT_OFFERED
        assert await here.seen("tasks/list") == []

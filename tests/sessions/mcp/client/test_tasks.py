"""Calls that become tasks run to their end, and the server's questions on the way are answered."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sessions.mcp.client import InputRequest, Refused
from sessions.mcp.core.errors import Fault, McpError, ProtocolError, RpcError
from sessions.mcp.core.events import NotDelivered
from sessions.mcp.core.tasks import Status, TaskOptions, TaskState
from tests.sessions.mcp.client.task_server import TaskServer
from tests.sessions.mcp.client.task_setting import Setting, answer, place, setting, text, until_seen

__all__ = ["place"]


async def refuse(asked: InputRequest) -> Mapping[str, Any]:
    raise Refused(-1, "not today")


# -- final states


async def test_a_call_that_becomes_a_task_ends_with_its_result_and_every_state_is_reported(place: Setting) -> None:
    told: list[TaskState] = []
    result = await place.made.client.call_tool("quick", {"a": 1}, task=TaskOptions(60_000, told.append))
    assert text(result) == "done"
    assert [state.status for state in told] == [Status.WORKING, Status.WORKING, Status.COMPLETED]
    assert {(state.task_id, state.ttl, state.poll) for state in told} == {("task-1", 60.0, 0.1)}
    calls = await place.seen("tools/call")
    assert calls[0]["params"].get("task") == (None if place.era == "modern" else {"ttl": 60_000})
    assert len(await place.seen("tasks/result")) == (0 if place.era == "modern" else 1)


async def test_the_task_id_is_told_before_the_server_is_asked_anything_else(place: Setting) -> None:
    """A caller that stores the id then can resume after a crash at any later moment."""
    asked_by_then: list[int] = []

    def keep(state: TaskState) -> None:
        asked_by_then.append(place.made.client.in_flight)

    await place.made.client.call_tool("quick", {}, task=TaskOptions(on_task=keep))
    assert asked_by_then[0] == 0
    assert len(asked_by_then) == 3


async def test_a_state_that_is_marked_as_a_task_is_read_all_the_same() -> None:
    """2026-07-28: the result of `tasks/get` is "complete", but some servers write "task" there too."""
    async with setting("modern", "http") as here:
        assert text(await here.made.client.call_tool("moves", {})) == "done"


async def test_a_handler_of_states_that_fails_does_not_lose_the_result(place: Setting) -> None:
    def broken(state: TaskState) -> None:
        raise RuntimeError("the owner's own fault")

    assert text(await place.made.client.call_tool("quick", {}, task=TaskOptions(on_task=broken))) == "done"


async def test_the_error_of_a_task_is_the_error_of_the_call(place: Setting) -> None:
    with pytest.raises(RpcError) as failed:
        await place.made.client.call_tool("fails", {})
    assert (failed.value.code, failed.value.message, failed.value.data) == (-32050, "it broke", {"why": "test"})


async def test_a_task_that_the_server_cancels_ends_the_call_with_that_word(place: Setting) -> None:
    with pytest.raises(McpError) as ended:
        await place.made.client.call_tool("gives_up", {})
    assert ended.value.fault is Fault.TASK_CANCELLED
    assert ended.value.may_have_run


async def test_a_task_that_the_server_forgot_is_lost_and_may_have_run(place: Setting) -> None:
    with pytest.raises(McpError) as lost:
        await place.made.client.call_tool("forgotten", {})
    assert (lost.value.fault, lost.value.may_have_run) == (Fault.TASK_LOST, True)
    assert isinstance(lost.value.__cause__, RpcError)


@pytest.mark.parametrize("name", ["odd", "other"])
async def test_an_answer_that_is_not_this_task_ends_the_wait(place: Setting, name: str) -> None:
    with pytest.raises(McpError) as ended:
        await place.made.client.call_tool(name, {})
    assert ended.value.fault in (Fault.INVALID_RESULT, Fault.TASK_LOST)
    assert ended.value.may_have_run


async def test_looks_that_fail_are_repeated_and_the_task_goes_on(place: Setting) -> None:
    assert text(await place.made.client.call_tool("stumbles", {})) == "done"


@pytest.mark.parametrize(
    ("name", "words", "looks"),
    [
        ("falls", 'with -32603. The server says: "busy"', 4),
        ("mute", 'with -32601. The server says: "no such method"', 1),
    ],
)
async def test_a_task_that_cannot_be_followed_may_have_run(place: Setting, name: str, words: str, looks: int) -> None:
    """An error of `tasks/get` says nothing about the call."""
    with pytest.raises(McpError, match=words) as lost:
        await place.made.client.call_tool(name, {})
    assert (lost.value.fault, lost.value.may_have_run) == (Fault.TASK_LOST, True)
    assert len(await place.seen("tasks/get")) == looks


# -- the server's questions


async def test_a_question_of_a_task_is_put_once_and_its_answer_reaches_the_task(place: Setting) -> None:
    put: list[InputRequest] = []

    async def remember(asked: InputRequest) -> Mapping[str, Any]:
        put.append(asked)
        await asyncio.sleep(0.35)  # meanwhile the server repeats the question in several polls
        return await answer(asked)

    async with setting(place.era, place.transport, answers=remember) as here:
        told: list[TaskState] = []
        result = await here.made.client.call_tool("asks", {}, task=TaskOptions(on_task=told.append))
        given = text(result)["q0"] if place.era == "modern" else text(result)
        related = {"io.modelcontextprotocol/related-task": {"taskId": "task-1"}}
        of_task = {} if place.era == "modern" else {"_meta": related}
        assert given == {"action": "accept", "content": {"v": "blue"}} | of_task
        assert [one.origin for one in put] == ["task"]
        assert sum(state.status is Status.INPUT_REQUIRED for state in told) >= 2
        assert told[-1].status is Status.COMPLETED
        assert len(await here.seen("tasks/update")) == (1 if place.era == "modern" else 0)


class Deaf(TaskServer):
    """Its tasks no longer need an answer."""

    def _tasks_update(self, params: dict[str, Any], *_: Any) -> dict[str, Any]:
        super()._tasks_update(params)
        return {"error": {"code": -32602, "message": "too late"}}


async def test_an_answer_that_a_task_did_not_take_is_named() -> None:
    put: list[InputRequest] = []

    async def remember(asked: InputRequest) -> Mapping[str, Any]:
        put.append(asked)
        return await answer(asked)

    async with setting("modern", "http", answers=remember, server=Deaf("modern")) as here:
        await here.made.client.call_tool("asks", {})
        assert [event.key for event in here.made.of(NotDelivered)] == [one.key for one in put] == ["task-1/q0"]


async def test_the_tag_of_the_call_comes_with_the_question_of_its_task_whatever_else_runs(place: Setting) -> None:
    tags: list[Any] = []

    async def remember(asked: InputRequest) -> Mapping[str, Any]:
        tags.append(asked.tag)
        return await answer(asked)

    async with setting(place.era, place.transport, answers=remember) as here:
        client, began = here.made.client, asyncio.Event()
        options = TaskOptions(on_task=lambda state: began.set())
        other = asyncio.create_task(client.call_tool("endless", {}, task=options, tag="another call"))
        await began.wait()
        await client.call_tool("asks", {}, tag="call 7")
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert tags == ["call 7"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_refused_question_ends_the_call_and_the_server_is_told_to_cancel_the_task(transport: str) -> None:
    async with setting("modern", transport, answers=refuse) as here:
        with pytest.raises(McpError) as ended:
            await here.made.client.call_tool("asks", {})
        assert (ended.value.fault, ended.value.may_have_run) == (Fault.INPUT_REFUSED, True)
        assert await until_seen(here, "tasks/cancel")


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_task_that_asks_without_end_is_given_up(transport: str) -> None:
    async with setting("modern", transport) as here:
        with pytest.raises(ProtocolError) as ended:
            await here.made.client.call_tool("asks_much", {})
        assert ended.value.fault is Fault.ROUND_LIMIT

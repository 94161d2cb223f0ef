"""Calls that become tasks, against a scripted server of both kinds over both kinds of transport."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sessions.client import Answer, Asked, Refused
from sessions.protocol.errors import Fault, InvalidRequest, McpError, ProtocolError, RpcError
from sessions.protocol.tasks import EXTENSION, Status, TaskState, TaskWish
from sessions.transports.registry import StdioSpec
from tests.sessions.client.task_server import TaskServer, over_http
from tests.sessions.transports.making import Made, connected, http
from tests.sessions.transports.scripted_http import scripted_http

SERVER = str(Path(__file__).with_name("task_server.py"))
DECLARED = {"extensions": {EXTENSION: {}}, "elicitation": {"form": {}}}


@dataclass
class Setting:
    made: Made
    era: str
    transport: str

    async def seen(self, method: str) -> list[dict[str, Any]]:
        """What the server was asked so far, by its own word."""
        result = await self.made.client.call_tool("seen", {}, task=TaskWish(support="forbidden"))
        return [message for message in json.loads(result.content[0]["text"]) if message.get("method") == method]


async def answer(asked: Asked) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"v": "blue"}}


async def refuse(asked: Asked) -> Mapping[str, Any]:
    raise Refused(-1, "not today")


@asynccontextmanager
async def setting(
    era: str, transport: str, *, poll: int = 100, answers: Answer = answer, server: TaskServer | None = None
) -> AsyncIterator[Setting]:
    more: dict[str, Any] = {"capabilities": DECLARED, "answers": {"elicitation/create": answers}}
    if transport == "stdio":
        async with connected(StdioSpec(sys.executable, (SERVER, era, str(poll))), **more) as made:
            yield Setting(made, era, transport)
    else:
        served = over_http(server or TaskServer(era, poll=poll))
        async with scripted_http(served) as peer, connected(http(peer.url), **more) as made:
            yield Setting(made, era, transport)


EVERYWHERE = [(era, transport) for era in ("legacy", "modern") for transport in ("stdio", "http")]


@pytest.fixture(params=EVERYWHERE, ids=lambda param: "-".join(param))
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    async with setting(*request.param) as made:
        yield made


def text(result: Any) -> Any:
    return json.loads(result.content[0]["text"])


# -- to the end


async def test_a_call_that_becomes_a_task_ends_with_its_result_and_every_state_is_told(place: Setting) -> None:
    told: list[TaskState] = []
    result = await place.made.client.call_tool("quick", {"a": 1}, task=TaskWish(60_000, told.append))
    assert text(result) == "done"
    assert [state.status for state in told] == [Status.WORKING, Status.WORKING, Status.COMPLETED]
    assert {(state.task_id, state.ttl, state.poll) for state in told} == {("task-1", 60.0, 0.1)}
    calls = await place.seen("tools/call")
    assert calls[0]["params"].get("task") == (None if place.era == "modern" else {"ttl": 60_000})
    assert len(await place.seen("tasks/result")) == (0 if place.era == "modern" else 1)


async def test_the_task_id_is_told_before_the_server_is_asked_anything_else(place: Setting) -> None:
    """Whoever keeps the id at that moment can go on after a crash at any later one."""
    asked_by_then: list[int] = []

    def keep(state: TaskState) -> None:
        asked_by_then.append(place.made.client.in_flight)

    await place.made.client.call_tool("quick", {}, task=TaskWish(on_task=keep))
    assert asked_by_then[0] == 0
    assert len(asked_by_then) == 3


async def test_a_state_that_is_marked_as_a_task_is_read_all_the_same() -> None:
    """2026-07-28: `tasks/get` is answered by a complete result; servers write "task" there, too."""
    async with setting("modern", "http") as here:
        assert text(await here.made.client.call_tool("moves", {})) == "done"


async def test_a_handler_of_states_that_fails_does_not_lose_the_result(place: Setting) -> None:
    def broken(state: TaskState) -> None:
        raise RuntimeError("the owner's own fault")

    assert text(await place.made.client.call_tool("quick", {}, task=TaskWish(on_task=broken))) == "done"


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


async def test_looks_that_always_fail_end_the_wait_with_their_error(place: Setting) -> None:
    with pytest.raises(RpcError, match="busy"):
        await place.made.client.call_tool("falls", {})
    assert len(await place.seen("tasks/get")) == 4


# -- what the server asks


async def test_a_question_of_a_task_is_put_once_and_its_answer_reaches_the_task(place: Setting) -> None:
    put: list[Asked] = []

    async def remember(asked: Asked) -> Mapping[str, Any]:
        put.append(asked)
        await asyncio.sleep(0.35)  # the server shows the same question to several looks meanwhile
        return await answer(asked)

    async with setting(place.era, place.transport, answers=remember) as here:
        told: list[TaskState] = []
        result = await here.made.client.call_tool("asks", {}, task=TaskWish(on_task=told.append))
        given = text(result)["q0"] if place.era == "modern" else text(result)
        assert given == {"action": "accept", "content": {"v": "blue"}}
        assert [one.origin for one in put] == ["task"]
        assert sum(state.status is Status.INPUT_REQUIRED for state in told) >= 2
        assert told[-1].status is Status.COMPLETED
        assert len(await here.seen("tasks/update")) == (1 if place.era == "modern" else 0)


async def test_the_tag_of_the_call_comes_with_the_question_of_its_task_whatever_else_runs(place: Setting) -> None:
    tags: list[Any] = []

    async def remember(asked: Asked) -> Mapping[str, Any]:
        tags.append(asked.tag)
        return await answer(asked)

    async with setting(place.era, place.transport, answers=remember) as here:
        client, began = here.made.client, asyncio.Event()
        wish = TaskWish(on_task=lambda state: began.set())
        other = asyncio.create_task(client.call_tool("endless", {}, task=wish, tag="another call"))
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


# -- given up by us


async def until_seen(here: Setting, method: str) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        while True:
            if found := await here.seen(method):
                return found
            await asyncio.sleep(0.02)


async def test_cancelling_the_caller_cancels_the_task_and_never_by_notification(place: Setting) -> None:
    began = asyncio.Event()
    wish = TaskWish(on_task=lambda state: began.set())
    calling = asyncio.create_task(place.made.client.call_tool("endless", {}, task=wish))
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


async def test_the_total_time_bounds_a_task_that_keeps_working(place: Setting) -> None:
    with pytest.raises(McpError) as ended:
        await place.made.client.call_tool("endless", {}, total_timeout=0.6)
    assert (ended.value.fault, ended.value.may_have_run) == (Fault.TOTAL_DEADLINE, True)
    assert "told to cancel it" in ended.value.detail
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
        wish = TaskWish(on_task=lambda state: began.set())
        calling = asyncio.create_task(here.made.client.call_tool("endless", {}, task=wish))
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
        wish = TaskWish(on_task=lambda state: None if began.done() else began.set_result(state.task_id))
        calling = asyncio.create_task(here.made.client.call_tool("quick", {}, task=wish))
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


# -- looking


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_news_of_a_task_shorten_the_wait_for_the_next_look(era: str) -> None:
    """The server asks for a look every 60 seconds only; the test would run into its own limit."""
    async with setting(era, "stdio", poll=60_000) as here, asyncio.timeout(30):
        client, began = here.made.client, asyncio.Event()
        calling = asyncio.create_task(client.call_tool("tells", {}, task=TaskWish(on_task=lambda state: began.set())))
        await began.wait()
        # Any look makes the scripted server tell that the task is over.
        await client.get_task("task-1")
        assert text(await calling) == "done"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_spams_news_does_not_make_us_look_without_pause(era: str) -> None:
    async with setting(era, "stdio", poll=300_000) as here:
        began = asyncio.Event()
        wish = TaskWish(on_task=lambda state: began.set())
        calling = asyncio.create_task(here.made.client.call_tool("spams", {}, task=wish))
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
    """2026-07-28, extension: Mcp-Name is the task, so that a balancer finds the instance that holds it."""
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
        assert text(await here.made.client.call_tool("quick", {}, task=TaskWish())) == "done"


async def test_a_result_whose_stream_broke_is_fetched_again() -> None:
    server = TaskServer("legacy")
    async with setting("legacy", "http", server=server) as here:
        server.__dict__["cut"].append("tasks/result")
        assert text(await here.made.client.call_tool("cut", {})) == "done"
        assert len(await here.seen("tasks/result")) == 2


# -- what is offered


async def test_a_tool_that_may_be_a_task_is_one_only_when_asked_for_and_one_that_must_be_always_is() -> None:
    async with setting("legacy", "stdio") as here:
        client = here.made.client
        assert (await client.call_tool("quick", {})).content[0]["text"] == "at once"
        assert (await client.call_tool("plain", {}, task=TaskWish())).content[0]["text"] == "at once"
        assert text(await client.call_tool("quick", {}, task=TaskWish())) == "done"
        assert text(await client.call_tool("moves", {})) == "done"
        sent = [one["params"].get("task") for one in await here.seen("tools/call")]
        assert sent[:4] == [None, None, {}, {}]
        assert len(await here.seen("tools/list")) == 1


async def test_what_the_caller_knows_of_the_tool_saves_the_listing() -> None:
    async with setting("legacy", "stdio") as here:
        assert text(await here.made.client.call_tool("quick", {}, task=TaskWish(support="optional"))) == "done"
        assert await here.seen("tools/list") == []


@pytest.mark.parametrize("ttl", [0, -5])
async def test_a_task_without_a_life_is_not_asked_for(ttl: int) -> None:
    async with setting("legacy", "stdio") as here:
        with pytest.raises(InvalidRequest, match="cannot live"):
            await here.made.client.call_tool("quick", {}, task=TaskWish(ttl))
        assert await here.seen("tools/call") == [(await here.seen("tools/call"))[0]]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_task_that_nobody_asked_for_is_an_invalid_result(transport: str) -> None:
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
            await client.call_tool("quick", {}, task=TaskWish())
        listing = await client.list_tasks()
        assert [state.task_id for state in listing.items] == ["task-1", "task-2", "task-3"]
        assert any("meditating" in warning for warning in listing.warnings)
        assert listing.limited_by is None


async def test_a_task_is_looked_at_and_cancelled_by_its_id(place: Setting) -> None:
    client = place.made.client
    await client.call_tool("quick", {}, task=TaskWish())
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

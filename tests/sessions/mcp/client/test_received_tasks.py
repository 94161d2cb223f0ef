"""Tasks that a legacy server starts on our side: it sends a request, polls the task, and fetches the person's answer
later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.mcp.client import InputRequest
from sessions.mcp.client.received_tasks import ReceivedTasks
from sessions.mcp.core.input_requests import ServerRequest
from sessions.mcp.core.received_tasks import TaskOutcome
from tests.sessions.mcp.client.answers import (
    DEFAULTS,
    ELICIT,
    FORM,
    SAMPLE,
    SAMPLING,
    ask,
    asking,
    complete,
    defaults,
    question,
    refuse,
    value,
)
from tests.sessions.mcp.transports.making import FlowSecrets, connected

pytestmark = pytest.mark.integration
AS_TASK = {"task": {"ttl": 600_000}}
RELATED = "io.modelcontextprotocol/related-task"


class Person:
    """Answers once `decides` is set."""

    def __init__(self) -> None:
        self.decides = asyncio.Event()
        self.asked: list[InputRequest] = []
        self.gone: list[str] = []

    async def answer(self, asked: InputRequest) -> dict[str, Any]:
        self.asked.append(asked)
        try:
            await self.decides.wait()
        except asyncio.CancelledError as gone:
            self.gone.append(str(gone.args[0]))
            raise
        return await (defaults(asked) if asked.method == ELICIT else complete(asked))


@asynccontextmanager
async def server(answer: Any, revision: str = "2025-11-25") -> AsyncIterator[FlowSecrets]:
    async with connected(asking(revision), capabilities=None, answers={ELICIT: answer, SAMPLE: answer}) as made:
        yield made


async def asked_of(made: FlowSecrets, identity: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The response that the server receives to one request."""
    (reply,) = value(await made.client.call_tool("ask", ask(question(identity, method, params))))
    return reply


async def begun(made: FlowSecrets, identity: int = 1, method: str = ELICIT, params: dict[str, Any] = FORM) -> str:
    created = (await asked_of(made, identity, method, params | AS_TASK))["result"]["task"]
    assert created["status"] == "working"
    assert created["pollInterval"] == 1_000
    return str(created["taskId"])


@pytest.mark.parametrize(("method", "params"), [(ELICIT, FORM), (SAMPLE, SAMPLING)])
async def test_a_server_makes_a_task_of_its_question_and_fetches_the_answer_when_a_person_gave_it(
    method: str, params: dict[str, Any]
) -> None:
    person = Person()
    async with server(person.answer) as made:
        task_id = await begun(made, 1, method, params)
        assert (await asked_of(made, 2, "tasks/get", {"taskId": task_id}))["result"]["status"] == "working"
        assert [one.params for one in person.asked] == [params]
        person.decides.set()
        fetched = (await asked_of(made, 3, "tasks/result", {"taskId": task_id}))["result"]
        assert fetched.pop("_meta") == {RELATED: {"taskId": task_id}}
        assert fetched == await (defaults if method == ELICIT else complete)(person.asked[0])
        state = (await asked_of(made, 4, "tasks/get", {"taskId": task_id}))["result"]
        assert (state["status"], state["taskId"], state["ttl"]) == ("completed", task_id, 120_000)
        assert [one["taskId"] for one in (await asked_of(made, 5, "tasks/list", {}))["result"]["tasks"]] == [task_id]


async def test_the_result_of_a_task_is_waited_for_until_the_person_decides() -> None:
    person = Person()
    async with server(person.answer) as made:
        task_id = await begun(made)
        fetching = asyncio.create_task(asked_of(made, 2, "tasks/result", {"taskId": task_id}))
        assert (await asked_of(made, 3, "tasks/get", {"taskId": task_id}))["result"]["status"] == "working"
        assert not fetching.done()
        person.decides.set()
        assert (await fetching)["result"]["content"] == DEFAULTS


async def test_a_refusal_fails_the_task_and_its_result_is_the_error_of_the_request() -> None:
    async with server(refuse) as made:
        task_id = await begun(made, 1, SAMPLE, SAMPLING)
        assert (await asked_of(made, 2, "tasks/result", {"taskId": task_id}))["error"]["message"] == "Not today"
        state = (await asked_of(made, 3, "tasks/get", {"taskId": task_id}))["result"]
        assert (state["status"], state["statusMessage"]) == ("failed", "Not today")


async def test_a_task_that_the_server_cancels_asks_no_one_any_more_and_cannot_be_cancelled_twice() -> None:
    person = Person()
    async with server(person.answer) as made:
        task_id = await begun(made)
        await asked_of(made, 2, "ping", {})
        assert (await asked_of(made, 3, "tasks/cancel", {"taskId": task_id}))["result"]["status"] == "cancelled"
        assert (await asked_of(made, 4, "tasks/cancel", {"taskId": task_id}))["error"]["code"] == -32602
        assert (await asked_of(made, 5, "tasks/result", {"taskId": task_id}))["result"]["action"] == "cancel"
        assert person.gone == ["withdrawn"]


@pytest.mark.parametrize("task_id", ["unknown", 7, None, ["x"]])
async def test_a_task_that_we_do_not_know_is_an_error_of_its_parameters(task_id: Any) -> None:
    async with server(defaults) as made:
        for number, method in enumerate(("tasks/get", "tasks/cancel", "tasks/result")):
            reply = await asked_of(made, number, method, {"taskId": task_id})
            assert reply["error"] == {"code": -32602, "message": "Task not found"}


async def test_the_end_of_the_connection_takes_the_question_back() -> None:
    person = Person()
    async with server(person.answer) as made:
        await begun(made)
        await asked_of(made, 2, "ping", {})
    await asyncio.sleep(0)
    assert person.gone == ["connection_over"]


async def test_nothing_is_kept_of_the_tasks_of_a_session_that_is_over() -> None:
    decides = asyncio.Event()

    async def answer(request: ServerRequest) -> TaskOutcome:
        await decides.wait()
        return {"action": "accept"}

    tasks = ReceivedTasks(answer, seconds=60)

    def asked(identity: int, method: str, **params: Any) -> ServerRequest:
        return ServerRequest(identity, method, params, "request", None)

    first = tasks.begin(asked(1, ELICIT))["task"]["taskId"]
    decides.set()
    assert isinstance(await tasks.result(asked(2, "tasks/result", taskId=first)), dict)
    decides.clear()
    waiting = tasks.begin(asked(3, ELICIT))["task"]["taskId"]
    fetching = asyncio.create_task(tasks.result(asked(4, "tasks/result", taskId=waiting)))
    await asyncio.sleep(0)
    tasks.stop()
    assert (await asyncio.wait_for(fetching, 10))["action"] == "cancel"  # type: ignore[index]  # no refusal
    assert (len(tasks), tasks._ends) == (0, {})


async def test_more_tasks_than_may_wait_are_refused() -> None:
    person = Person()
    async with server(person.answer) as made:
        for number in range(32):
            await begun(made, number)
        assert (await asked_of(made, 99, ELICIT, FORM | AS_TASK))["error"]["message"] == "Too many requests"


async def test_tasks_are_neither_offered_nor_made_before_the_revision_that_has_them() -> None:
    async with server(defaults, "2025-06-18") as made:
        assert "tasks" not in made.connected.client_capabilities
        assert (await asked_of(made, 1, ELICIT, FORM | AS_TASK))["result"] == {"action": "accept", "content": DEFAULTS}
        assert (await asked_of(made, 2, "tasks/get", {"taskId": "t"}))["error"]["code"] == -32601

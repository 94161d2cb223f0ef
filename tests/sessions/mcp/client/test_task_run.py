"""Whatever a server says about a task, waiting for it ends with a result or with one of our errors."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.mcp.client.task_run import TaskRun
from sessions.mcp.core import methods, tasks
from sessions.mcp.core.errors import Fault, HttpError, McpError, NotReady, RpcError, TransportError
from sessions.mcp.core.events import OtherNotification, StateChanged
from sessions.mcp.core.state import State
from sessions.mcp.core.tasks import Status, TaskOptions, TaskState
from sessions.mcp.core.versions import Era
from tests.tools.examples import examples

RESULT = {"content": [{"type": "text", "text": "done"}]}
FAILURES = {
    "busy": lambda: RpcError(-32603, "busy"),
    "gone": lambda: RpcError(-32602, "gone"),
    "unknown method": lambda: RpcError(-32601, "no"),
    "silence": lambda: TransportError(Fault.TIMEOUT, "silence", may_have_run=True),
    "unavailable": lambda: HttpError(Fault.HTTP_STATUS, "503", status=503, may_have_run=True, retry_after=0.0),
    "refused": lambda: HttpError(Fault.UNAUTHORIZED, "401", status=401, may_have_run=False),
    "not ready": lambda: NotReady("over"),
}
KEYS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.just({"method": "elicitation/create"}), max_size=3)
#: mostly states that continue, because a final state would hide what follows it
STATUSES = [*[Status.INPUT_REQUIRED] * 5, *[Status.WORKING] * 3, *Status, "odd"]
LOOK = st.one_of(
    st.tuples(st.sampled_from(STATUSES), KEYS),
    st.tuples(st.sampled_from(STATUSES), KEYS),
    st.tuples(st.sampled_from(["busy", "silence", *sorted(FAILURES)]), st.just({})),
)
#: outcomes of tasks/result, tasks/update and the answerer, in order
OTHERS = st.lists(st.sampled_from(["well", "well", "well", *sorted(FAILURES)]), max_size=6)


class Server:
    """Returns the given outcomes in order, and then says that the task was cancelled."""

    def __init__(self, era: Era, looks: list[Any], others: list[str]) -> None:
        self.era, self.looks, self.others = era, list(looks), list(others)
        self.asked: Counter[str] = Counter()
        self.updated: Counter[str] = Counter()

    async def request(self, method: str, params: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        self.asked[method] += 1
        await asyncio.sleep(0)
        if method == methods.TASKS_GET:
            return self._look()
        outcome = self.others.pop(0) if self.others else "well"
        if outcome != "well":
            raise FAILURES[outcome]()
        if method == methods.TASKS_UPDATE:
            self.updated.update(list(params["inputResponses"]))
            return {}
        return RESULT

    def _look(self) -> dict[str, Any]:
        status, questions = self.looks.pop(0) if self.looks else (Status.CANCELLED, {})
        if status in FAILURES:
            raise FAILURES[status]()
        inside = {"result": RESULT, "error": {"code": -1, "message": "no"}, "inputRequests": questions}
        return {"taskId": "t", "status": status, "pollInterval": 0, "pollIntervalMs": 0, **inside}


def told_nobody(key: str) -> None:
    pass


def run(server: Server, told: list[TaskState], answered: Counter[str]) -> TaskRun:
    async def answer(key: str, request: dict[str, Any]) -> Mapping[str, Any]:
        answered[key] += 1
        await asyncio.sleep(0)
        return {"action": "decline"}

    options = TaskOptions(on_task=told.append)
    return TaskRun("t", server.era, options, request=server.request, answer=answer, undelivered=told_nobody, seconds=5)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "POLL_LEAST", 0.0)
    monkeypatch.setattr(tasks, "POLL", 0.0)


@settings(deadline=None, max_examples=examples(300))
@given(era=st.sampled_from(Era), looks=st.lists(LOOK, max_size=8), others=OTHERS)
def test_the_wait_ends_whatever_the_server_says(era: Era, looks: list[Any], others: list[str]) -> None:
    server, told, answered = Server(era, looks, others), list[TaskState](), Counter[str]()

    async def wait() -> None:
        left_over = len(asyncio.all_tasks())
        try:
            async with asyncio.timeout(20):
                assert await run(server, told, answered).result(None) == RESULT
        except RpcError:  # the task's own error, and never that of a request about it
            assert told[-1].status is Status.FAILED
        except McpError:
            pass  # the other way to end
        assert len(asyncio.all_tasks()) == left_over

    asyncio.run(wait())
    assert max(answered.values(), default=0) <= 1
    assert max(server.updated.values(), default=0) <= 1
    assert server.asked[methods.TASKS_GET] <= len(looks) + 2
    assert not any(state.over for state in told[:-1])
    if era is Era.MODERN:
        assert server.asked[methods.TASKS_RESULT] == 0
    else:
        assert server.asked[methods.TASKS_UPDATE] == 0


@pytest.mark.parametrize(
    ("era", "look", "asked"),
    [
        (Era.LEGACY, (Status.COMPLETED, {}), methods.TASKS_RESULT),
        (Era.LEGACY, (Status.INPUT_REQUIRED, {}), methods.TASKS_RESULT),
        (Era.MODERN, (Status.INPUT_REQUIRED, {"a": {}}), methods.TASKS_UPDATE),
    ],
)
async def test_an_error_of_a_request_about_a_task_is_no_outcome_of_the_call(era: Era, look: Any, asked: str) -> None:
    looks = [look, *[(Status.WORKING, {})] * 9]
    with pytest.raises(McpError, match=f'answered {asked} with -32603. The server says: "busy"') as ended:
        await run(Server(era, looks, ["busy"] * 3), [], Counter()).result(None)
    assert (ended.value.fault, ended.value.may_have_run) == (Fault.TASK_LOST, True)


async def test_the_error_of_a_failed_task_is_the_outcome_also_where_the_task_asked_for_input_before() -> None:
    looks: list[Any] = [(Status.INPUT_REQUIRED, {}), (Status.FAILED, {})]
    with pytest.raises(RpcError, match="busy"):
        await run(Server(Era.LEGACY, looks, ["busy"]), [], Counter()).result(None)


async def test_a_change_of_the_sessions_state_makes_us_look_at_once() -> None:
    server = Server(Era.LEGACY, [(Status.WORKING, {})], [])
    following = run(server, [], Counter())
    waiting = asyncio.create_task(
        following.result(tasks.state_of({"taskId": "t", "status": "working", "pollInterval": 300_000}, Era.LEGACY))
    )
    await asyncio.sleep(0)
    following.on_event(StateChanged(State.READY, State.DISCONNECTED))
    with pytest.raises(McpError):
        async with asyncio.timeout(20):
            await waiting


async def test_news_of_another_task_do_not_wake_us() -> None:
    server = Server(Era.MODERN, [(Status.WORKING, {})], [])
    following = run(server, [], Counter())
    state = tasks.state_of({"taskId": "t", "status": "working", "pollIntervalMs": 300_000}, Era.MODERN)
    waiting = asyncio.create_task(following.result(state))
    await asyncio.sleep(0)
    following.on_event(OtherNotification("notifications/tasks", {"taskId": "another"}))
    following.on_event(OtherNotification("notifications/else", {"taskId": "t"}))
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.asked[methods.TASKS_GET] == 0
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_result_that_fails_at_once_is_asked_for_again_only_with_the_next_look() -> None:
    looks: list[Any] = [(Status.INPUT_REQUIRED, {})] * 100
    server = Server(Era.LEGACY, looks, ["unavailable"] * 100)
    state = tasks.state_of({"taskId": "t", "status": "input_required", "pollInterval": 300_000}, Era.LEGACY)
    waiting = asyncio.create_task(run(server, [], Counter()).result(state))
    for _ in range(200):
        await asyncio.sleep(0)
    assert (server.asked[methods.TASKS_RESULT], server.asked[methods.TASKS_GET]) == (1, 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

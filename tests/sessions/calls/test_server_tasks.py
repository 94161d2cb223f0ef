"""Tasks that outlived their call, as people see and cancel them."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.crypto import SealError
from servers.enums import ActionSource, PayloadKind
from sessions.calls import server_tasks
from sessions.calls.claims import CallOutcome
from sessions.enums import CallState, Desired, SessionState
from sessions.models import AgentCall, Call, McpSession, ServerTask
from sessions.models.server_task import FOLLOWED_FOR
from tests.sessions.agents.placed import principal_of
from tests.sessions.host.make import make_call, make_hold, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client) -> Any:
    user = get_user_model().objects.create_superuser("ada")
    client.force_login(user)
    return user


@pytest.fixture
def task() -> ServerTask:
    """It continues although its call's worker is gone and its session was closed."""
    session = make_session("files", desired=Desired.CLOSED)
    call, now = make_call(session), timezone.now()
    Call.objects.update(state=CallState.OUTCOME_UNKNOWN, finished_at=now)
    times = {"begun_at": now, "changed_at": now, "seen_at": now, "followed_since": now}
    return ServerTask.objects.create(call=call, session=session, task_id="t", status="working", **times)


def cancelled(client: Client, task: ServerTask) -> str:
    answer = client.post(f"/servers/files/tasks/{task.call.uid}/cancel/", follow=True)
    return " ".join(str(message) for message in answer.context["messages"])


def line(user: Any, task: ServerTask) -> server_tasks.TaskLine:
    assert task.call.server is not None
    [found] = server_tasks.lines(user, task.call.server)
    return found


def test_a_cancellation_opens_the_session_of_the_task(client: Client, ada: Any, task: ServerTask) -> None:
    assert line(ada, task).followed == "Tracked again once the server is connected"
    assert cancelled(client, task) == "The cancellation is sent once the server is connected."
    assert McpSession.objects.get().desired == Desired.OPEN
    assert ServerTask.objects.get().cancel_requested_by == "ada"
    assert cancelled(client, task) == "The task has ended, or its cancellation was already requested."


def test_the_cancellation_of_a_task_that_is_followed_is_sent(client: Client, ada: Any, task: ServerTask) -> None:
    McpSession.objects.update(state=SessionState.READY, desired=Desired.OPEN)
    assert line(ada, task).followed == "Tracked after the worker was lost"
    assert cancelled(client, task) == "Cancellation sent to the server."


def test_a_task_that_is_followed_no_more_is_lost_and_cannot_be_cancelled(
    client: Client, ada: Any, task: ServerTask
) -> None:
    assert (line(ada, task).word, line(ada, task).running) == ("Working", True)
    ServerTask.objects.update(begun_at=timezone.now() - FOLLOWED_FOR - timedelta(seconds=1))
    assert (line(ada, task).word, line(ada, task).running) == ("Lost", False)
    assert cancelled(client, task) == "The task has ended, or its cancellation was already requested."
    assert McpSession.objects.get().desired == Desired.CLOSED
    assert (server_tasks.give_up_old(), server_tasks.give_up_old()) == (1, 0)
    assert line(ada, task).task.detail == "No longer tracked after 7 days."


def test_a_cancellation_that_the_server_refused_says_so_and_can_be_asked_for_again(
    client: Client, ada: Any, task: ServerTask
) -> None:
    assert task.session_id is not None
    McpSession.objects.update(state=SessionState.READY)
    cancelled(client, task)
    assert not line(ada, task).cancellable
    [orphan] = server_tasks.orphans(task.session_id)
    server_tasks.not_cancelled(orphan.call, make_hold(make_session("other")), "The server is busy.")
    assert line(ada, task).detail == "Not cancelled. The server is busy."
    assert line(ada, task).cancellable
    assert cancelled(client, task) == "Cancellation sent to the server."
    assert line(ada, task).detail == ""


def test_a_result_of_a_task_that_cannot_be_encrypted_is_said_to_be_lost(
    ada: Any, task: ServerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise SealError("The key ring cannot be read.")

    assert task.session_id is not None
    [orphan] = server_tasks.orphans(task.session_id)
    monkeypatch.setattr(payloads, "store", refused)
    outcome = CallOutcome(CallState.SUCCEEDED, "{}")
    assert server_tasks.ended(orphan.call, make_hold(make_session("other")), outcome) == []
    assert line(ada, task).detail == "The result was not stored, because it cannot be encrypted."


def test_a_server_that_cannot_cancel_tasks_is_not_asked_to(client: Client, ada: Any, task: ServerTask) -> None:
    offers = {"requests": {"tools": {"call": {}}}}
    connected = {"state": SessionState.READY, "revision": "2025-11-25", "server_capabilities": {"tasks": offers}}
    McpSession.objects.update(**connected)
    assert not line(ada, task).cancellable
    for state in (CallState.OUTCOME_UNKNOWN, CallState.SENT):
        Call.objects.update(state=state)
        assert cancelled(client, task) == "The server does not support cancelling tasks."
        page = f"/servers/files/tasks/{task.call.uid}/cancel/"
        answer = client.post(page, headers={"HX-Request": "true"})
        words = "The server does not support cancelling tasks."
        assert (answer.status_code, answer.content.decode()) == (409, words)
    assert not Call.objects.exclude(cancel_requested_at=None).exists()
    McpSession.objects.update(server_capabilities={"tasks": offers | {"cancel": {}}})
    assert line(ada, task).cancellable


@pytest.mark.parametrize(
    ("state", "status", "word", "tone"),
    [
        (CallState.CANCELLED, "working", "Cancelled", "line"),
        (CallState.SUCCEEDED, "input_required", "Completed", "ok"),
        (CallState.TOOL_ERROR, "working", "Failed", "bad"),
        (CallState.FAILED, "working", "Failed", "bad"),
        (CallState.SENT, "working", "Working", "run"),
    ],
)
def test_a_task_whose_call_has_ended_is_not_lost_if_the_call_says_how_it_ended(
    ada: Any, task: ServerTask, state: CallState, status: str, word: str, tone: str
) -> None:
    Call.objects.update(state=state)
    ServerTask.objects.update(status=status)
    shown = line(ada, task)
    assert (shown.word, shown.tone) == (word, tone)


def test_a_task_whose_result_came_late_is_completed(ada: Any, task: ServerTask) -> None:
    Call.objects.update(late_result=payloads.store(PayloadKind.RESULT, "{}"))
    ServerTask.objects.update(ended_at=timezone.now())
    assert line(ada, task).word == "Completed"


def test_a_task_that_is_followed_on_for_an_agent_asks_whom_its_call_could_ask(ada: Any, task: ServerTask) -> None:
    assert task.session_id is not None
    assert [orphan.call.agent for orphan in server_tasks.orphans(task.session_id)] == [None]
    Call.objects.update(way=ActionSource.AGENT)
    token = principal_of(ada).token
    AgentCall.objects.create(call=task.call, token=token, token_name="laptop", same="0", asks_people=False)
    [orphan] = server_tasks.orphans(task.session_id)
    assert orphan.call.agent is not None
    assert not orphan.call.agent.asks_people

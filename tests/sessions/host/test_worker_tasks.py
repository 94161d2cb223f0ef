"""Calls that become tasks, through a real worker, are followed to their result, and their questions go to the inbox."""

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from servers.audit.record import Actor
from servers.configuration import Registration
from servers.enums import DraftState, TransportKind
from servers.models import ServerDraft
from servers.registration.drafts import new_draft
from sessions.calls import server_tasks
from sessions.connections import commands
from sessions.enums import CallState, QuestionState
from sessions.models import Call, McpSession, ServerTask
from tests.peers.peers import peer_command
from tests.sessions.host.harness import WorkerProcess, await_ready, ended, eventually
from tests.sessions.host.make import make_session
from tests.sessions.host.questions import answer, asked_by, begin, over, peer_session, person, text_of
from tests.sessions.mcp.client.task_setting import SERVER as TASK_SERVER
from tests.sessions.mcp.client.test_tasks_of_sdks import sdk

pytestmark = pytest.mark.integration
ROOTS = [{"uri": "file:///srv/x", "name": "x"}]
#: tools of server-everything that it lists only for a client that declares the capability they need
GATED = {
    "get-roots-list",
    "simulate-research-query",
    "trigger-elicitation-request",
    "trigger-elicitation-request-async",
    "trigger-sampling-request",
    "trigger-sampling-request-async",
    "trigger-url-elicitation",
}


@pytest.fixture
def worker(shared_worker: WorkerProcess) -> WorkerProcess:
    return shared_worker


def task_session(era: str) -> McpSession:
    """A session of the scripted server whose tools become tasks."""
    return peer_of(era=era, command=sdk("sdk1").command, arguments=[TASK_SERVER, era])


def peer_of(**fields: Any) -> McpSession:
    session = make_session(**fields)
    await_ready(session, 40)
    eventually(lambda: session.server.definitions.filter(kind="tool").exists())
    return session


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_task_is_followed_to_its_result_and_its_question_waits_in_the_inbox(worker: WorkerProcess, era: str) -> None:
    session = task_session(era)
    assert text_of(ended(begin(session, "quick", a=1))) == ("at once" if era == "legacy" else '"done"')
    call = begin(session, "asks")
    question = asked_by(call)
    assert (question.kind, question.origin, question.summary) == ("form", "task", "Which?")
    assert answer(question, "accept", {"v": "blue"})
    done = ended(call)
    assert done.state == CallState.SUCCEEDED
    assert "blue" in text_of(done)
    assert over(question).state == QuestionState.ACCEPTED


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_task_that_the_server_forgets_while_its_session_goes_on_is_lost(worker: WorkerProcess, era: str) -> None:
    session = task_session(era)
    call = ended(begin(session, "forgotten"))
    assert (call.state, call.fault) == (CallState.OUTCOME_UNKNOWN, "task_lost")
    task = eventually(ServerTask.objects.filter(call=call).exclude(ended_at=None).first)
    assert "no longer knows the task" in task.detail
    [line] = server_tasks.lines(person("grace"), session.server)
    assert (line.running, line.word) == (False, "Lost")


def test_the_extension_of_a_real_modern_server_is_declared_and_followed(worker: WorkerProcess) -> None:
    peer = sdk("sdk2", "stdio")
    shared = [str(Path(__file__).parents[2] / "peers")]  # it imports serving.py from there
    session = peer_of(era="modern", command=peer.command, arguments=list(peer.args), readable_paths=shared)
    call = begin(session, "ask")
    question = asked_by(call)
    assert answer(question, "accept", {"v": "green"})
    assert text_of(ended(call)) == "green"


def test_a_call_that_runs_as_a_task_says_so_while_it_does(worker: WorkerProcess) -> None:
    call = begin(task_session("modern"), "endless")
    row = eventually(Call.objects.filter(pk=call.pk).exclude(progress_message="").first)
    assert (row.progress_message, row.progress) == ("Runs as a task.", None)


def test_a_tool_that_may_run_as_a_task_does_when_someone_ticked_it(worker: WorkerProcess) -> None:
    session = task_session("legacy")
    admin = Client()
    admin.force_login(person("grace"))
    page = admin.get(f"/servers/{session.server.slug}/tools/?tool=quick").content.decode()
    assert "Run as a task" in page
    assert "Run as a task" not in admin.get(f"/servers/{session.server.slug}/tools/?tool=plain").content.decode()
    assert "Runs as a task" in admin.get(f"/servers/{session.server.slug}/tools/?tool=asks").content.decode()
    for ticked, words in ((["yes"], '"done"'), ([], "at once")):
        answered = admin.post(
            f"/servers/{session.server.slug}/call/?tool=quick",
            {"_mode": "form", **({"_task": ticked} if ticked else {})},
        )
        assert answered.status_code == 303
        call = ended(Call.objects.latest("pk"))
        assert (call.as_task, text_of(call)) == (bool(ticked), words)
    again = admin.post(f"/calls/{Call.objects.earliest('pk').uid}/repeat/")
    assert again.status_code == 303
    assert text_of(ended(Call.objects.latest("pk"))) == '"done"'


def test_server_everything_offers_all_that_it_has_to_the_session_and_to_the_test(worker: WorkerProcess) -> None:
    session = peer_session("everything", roots=ROOTS)
    offered = set(session.server.definitions.filter(kind="tool").values_list("key", flat=True))
    assert offered >= GATED
    assert len(offered) == 19
    user = get_user_model().objects.get_or_create(username="ada", is_superuser=True)[0]
    command, arguments = peer_command("everything", "stdio")
    registration = Registration(
        name="Draft", transport=TransportKind.STDIO, command=command, arguments=arguments, roots=ROOTS
    )
    draft = new_draft(Actor.of_user(user), user, registration)
    commands.test_draft(Actor.of_user(user), draft)
    tested = ServerDraft.objects.filter(pk=draft.pk, state__in=[DraftState.SUCCEEDED, DraftState.FAILED])
    assert eventually(tested.first, 40).report["tools"] == 19


def test_what_server_everything_asks_as_a_task_of_ours_is_answered_by_a_person(worker: WorkerProcess) -> None:
    call = begin(peer_session("everything"), "trigger-elicitation-request-async")
    question = asked_by(call)
    assert answer(question, "accept", {"name": "Ada"})
    done = ended(call)
    assert "[COMPLETED] User provided the requested information!" in text_of(done)
    assert "- Name: Ada" in text_of(done)
    assert over(question).state == QuestionState.ACCEPTED

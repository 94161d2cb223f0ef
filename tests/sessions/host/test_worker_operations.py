"""Reads, prompts and completions through a real worker are calls like any other, each sent at most once."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from servers.audit import payloads
from servers.enums import AuditAction
from servers.models import AuditEvent
from sessions.enums import CallState
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ
from sessions.models import Attempt, Call, McpSession
from tests.sessions.host.harness import Effects, WorkerProcess, await_ready, effect_session, ended, eventually, wake
from tests.sessions.host.make import make_call, make_session
from tests.sessions.host.questions import peer_session

pytestmark = pytest.mark.integration
LIBRARY = Path(__file__).with_name("library_server.py")


@pytest.fixture
def library(shared_worker: WorkerProcess, effects: Effects) -> McpSession:
    environment = {"EFFECT_LOG": str(effects.path)}
    session = make_session("library", command=sys.executable, arguments=[str(LIBRARY)], environment=environment)
    await_ready(session)
    return session


def run(session: McpSession, method: str, target: str, **arguments: Any) -> Call:
    call = make_call(session, target, method=method, **arguments)
    wake(call)
    return ended(call)


def result(call: Call) -> dict[str, Any]:
    assert call.state == CallState.SUCCEEDED, (call.fault, call.detail, call.error_message)
    return json.loads(payloads.read(call.result) or "")


def test_each_method_is_sent_as_the_protocol_writes_it_and_audited_with_its_name(
    library: McpSession, effects: Effects
) -> None:
    about = {"argument": {"name": "tone", "value": "k"}, "context": {"arguments": {"code": "x = 1"}}}
    read = run(library, RESOURCES_READ, "lib://mixed", uri="lib://mixed")
    prompt = run(library, PROMPTS_GET, "review", code="x = 1")
    completion = run(library, COMPLETE, "ref/prompt:review", **about)
    assert [content["uri"] for content in result(read)["contents"]] == ["lib://mixed", "lib://mixed/2"]
    assert result(prompt)["messages"][0]["content"]["text"] == "Review x = 1"
    assert result(completion)["completion"]["values"] == ["kind", "keen"]
    sent = json.dumps({"ref": {"type": "ref/prompt", "name": "review"}} | about, sort_keys=True)
    assert effects.lines() == ["read lib://mixed", 'get review {"code": "x = 1"}', f"complete {sent}"]
    for call in (read, prompt, completion):
        events = AuditEvent.objects.filter(call_uid=call.uid).order_by("seq")
        assert [event.action for event in events] == [AuditAction.CALL_SEND, AuditAction.CALL_FINISH]
        assert {json.loads(event.body)["details"]["method"] for event in events} == {call.method}


@pytest.mark.parametrize("method", [RESOURCES_READ, COMPLETE])
def test_the_same_message_many_times_has_one_effect(method: str, library: McpSession, effects: Effects) -> None:
    target = "lib://plain" if method == RESOURCES_READ else "ref/resource:lib://shelf/{name}"
    call = make_call(library, target, method=method, argument={"name": "name", "value": "k"})
    for _ in range(50):
        wake(call)
    result(ended(call))
    wake(call)
    run(library, RESOURCES_READ, "lib://after")
    assert len(effects.lines()) == 2
    assert Attempt.objects.filter(call=call).count() == 1


def test_a_resource_that_the_server_does_not_know_is_its_error_and_not_ours(library: McpSession) -> None:
    call = run(library, RESOURCES_READ, "lib://lost")
    assert (call.state, call.error_code, call.error_message) == (CallState.RPC_ERROR, -32002, "Resource not found")


def test_a_result_without_its_list_is_kept_and_said_to_be_broken(library: McpSession) -> None:
    call = run(library, RESOURCES_READ, "lib://broken")
    assert result(call) == {"contents": "none"}
    assert "no list “contents”" in call.schema_violation


def test_a_reading_shows_its_progress_and_is_cancelled_at_the_server_too(library: McpSession, effects: Effects) -> None:
    call = make_call(library, "lib://slow", method=RESOURCES_READ)
    wake(call)
    eventually(lambda: Call.objects.get(pk=call.pk).progress)
    Call.objects.filter(pk=call.pk).update(cancel_requested_at=timezone.now())
    wake(call, "cancel")
    done = ended(call)
    assert done.state == CallState.CANCELLED
    assert "tool" not in done.detail
    eventually(lambda: effects.count("cancelled"))


def test_a_server_that_dies_while_it_is_read_leaves_the_outcome_unknown_and_is_not_asked_again(
    library: McpSession, effects: Effects
) -> None:
    call = run(library, RESOURCES_READ, "lib://die")
    assert (call.state, call.detail.endswith("The server may have received it.")) == (CallState.OUTCOME_UNKNOWN, True)
    run(library, RESOURCES_READ, "lib://after")
    assert effects.lines() == ["read lib://die", "read lib://after"]


def test_a_server_that_declares_no_prompts_is_not_asked_for_one(library: McpSession, effects: Effects) -> None:
    session = effect_session(effects)
    await_ready(session)
    call = run(session, PROMPTS_GET, "review")
    assert (call.state, call.fault) == (CallState.FAILED, "not_offered")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_demo_server_answers_all_three_in_both_eras(era: str, shared_worker: WorkerProcess) -> None:
    words = settings.DEMO_COMMAND
    session = make_session("demo", era=era, command=words[0], arguments=words[1:])
    assert await_ready(session).era == era
    about = {"argument": {"name": "name", "value": "sour"}}
    assert result(run(session, RESOURCES_READ, "demo://notes/sourdough"))["contents"][0]["text"].startswith("Sourdough")
    assert result(run(session, PROMPTS_GET, "explain", topic="tools"))["messages"][0]["role"] == "user"
    values = result(run(session, COMPLETE, "ref/resource:demo://notes/{name}", **about))["completion"]["values"]
    assert values == ["sourdough"]


@pytest.mark.parametrize("peer", ["sdk1", "sdk2"])
def test_servers_of_the_official_sdks_answer_all_three(peer: str, shared_worker: WorkerProcess) -> None:
    session = peer_session(peer)
    about = {"argument": {"name": "style", "value": ""}}
    assert "# A peer" in result(run(session, RESOURCES_READ, "peer://readme"))["contents"][0]["text"]
    prompt = result(run(session, PROMPTS_GET, "summarise", text="a long story"))
    assert "a long story" in prompt["messages"][0]["content"]["text"]
    assert result(run(session, COMPLETE, "ref/prompt:summarise", **about))["completion"]["values"]

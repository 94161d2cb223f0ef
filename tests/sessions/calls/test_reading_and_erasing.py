"""Who reads what another person's call sent or returned is in the audit log; what is erased is gone from every page."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.audit.record import Actor, Event, record
from servers.enums import ActionSource, AuditAction, AuditOutcome, PayloadKind
from servers.models import AuditEvent, Payload, PrivacySettings
from sessions.calls import server_tasks
from sessions.calls.claims import CallOutcome
from sessions.enums import CallState, QuestionState
from sessions.mcp.core.tasks import Status, TaskState
from sessions.models import Call, LogLine, McpSession, Question, ServerTask
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_hold, make_session
from tests.sessions.inbox.rows import FORM, a_question
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db
ARGUMENT, RESULT = "argument-of-ann", "result-of-ann"
READER = ("view_server", "call_tool", "view_payload", "view_auditevent")


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def ann() -> Any:
    return person("ann", "view_server", "call_tool")


@pytest.fixture
def call(ann: Any) -> Call:
    made = make_call(make_session("tools"), "echo", text=ARGUMENT)
    text = json.dumps({"content": [{"type": "text", "text": RESULT}], "structuredContent": {"a": 1}})
    result = payloads.store(PayloadKind.RESULT, text)
    fields = {"state": CallState.SUCCEEDED, "finished_at": timezone.now(), "user": ann, "user_name": "ann"}
    Call.objects.filter(pk=made.pk).update(result=result, schema_violation=RESULT, **fields)
    digests = {"arguments": made.arguments.digest}
    record(
        Event(AuditAction.CALL_REQUEST, AuditOutcome.PENDING, Actor.of_user(ann), call_uid=made.uid, digests=digests)
    )
    return Call.objects.select_related("arguments", "result").get(pk=made.pk)


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def readings(*, by: str) -> list[str]:
    found = AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ, actor_name=by).order_by("seq")
    return [json.loads(event.body)["details"]["kind"] for event in found]


def test_another_persons_page_of_the_call_is_recorded_once(call: Call) -> None:
    bob = client_of(person("bob", *READER))
    for _ in range(2):
        assert RESULT in bob.get(f"/calls/{call.uid}/").content.decode()
    assert sorted(readings(by="bob")) == ["arguments", "result"]
    event = AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ).first()
    assert (event.call_uid, event.server_name, event.subject) == (call.uid, "Tools", "echo")


def test_the_caller_reads_their_own_call_without_an_event(call: Call, ann: Any) -> None:
    assert RESULT in client_of(ann).get(f"/calls/{call.uid}/").content.decode()
    assert readings(by="ann") == []


@pytest.mark.parametrize("part", ["card/", "result.json", "structured.json", "contents/0/"])
def test_every_way_to_the_result_is_recorded(call: Call, part: str) -> None:
    assert client_of(person("bob", *READER)).get(f"/calls/{call.uid}/{part}").status_code == 200
    assert readings(by="bob") == ["result"]


def test_the_audit_page_of_an_event_is_recorded(call: Call) -> None:
    seq = AuditEvent.objects.get(action=AuditAction.CALL_REQUEST).seq
    assert ARGUMENT in client_of(person("bob", *READER)).get(f"/audit/{seq}/").content.decode()
    assert readings(by="bob") == ["arguments"]


def test_who_may_not_read_payloads_sees_none_and_leaves_no_event(call: Call) -> None:
    page = client_of(person("eve", "view_server", "view_auditevent")).get(f"/calls/{call.uid}/").content.decode()
    assert RESULT not in page
    assert readings(by="eve") == []


def test_erasing_takes_the_content_from_every_page_and_keeps_the_reason(call: Call) -> None:
    dpo = client_of(person("dora", "view_server", "view_auditevent", "erase_payload", "view_payload"))
    page = dpo.get(f"/calls/{call.uid}/").content.decode()
    assert f"/payloads/{call.result.digest}/erase/" in page
    asked = dpo.get(f"/payloads/{call.result.digest}/erase/").content.decode()
    assert f'<a href="/calls/{call.uid}/">call #{call.pk} to {call.target}</a>' in asked
    assert dpo.post(f"/payloads/{call.result.digest}/erase/", {"reason": ""}).status_code == 422
    response = dpo.post(f"/payloads/{call.result.digest}/erase/", {"reason": "request 17"}, follow=True)
    assert "audit log stays valid" in response.content.decode()
    assert RESULT not in dpo.get(f"/calls/{call.uid}/").content.decode()
    event = AuditEvent.objects.get(action=AuditAction.PAYLOAD_ERASE)
    assert (event.actor_name, event.call_uid) == ("dora", call.uid)
    assert json.loads(event.body)["details"]["reason"] == "request 17"


def add_line(call: Call, text: str, *, seconds: float = 0.5, **fields: Any) -> LogLine:
    """A line of the log of the call's session, `seconds` after the call was sent."""
    seq = LogLine.objects.count() + 1
    at = call.sent_at + timedelta(seconds=seconds)
    return LogLine.objects.create(server=call.server, seq=seq, at=at, text=text, **{"source": "server"} | fields)


@pytest.mark.parametrize("part", ["arguments", "result"])
def test_erasing_takes_the_lines_of_the_call_and_what_its_server_wrote_meanwhile_from_the_log(
    call: Call, part: str
) -> None:
    sent = timezone.now() - timedelta(seconds=30)
    Call.objects.update(sent_at=sent, finished_at=sent + timedelta(seconds=2), detail='It failed. The server says: "x"')
    call.refresh_from_db()
    other = make_call(call.session, "echo", text="another")
    gone = [
        add_line(call, f"got {ARGUMENT}", call_uid=call.uid, logger=ARGUMENT),
        add_line(call, f"got {ARGUMENT}", source="stderr"),
        add_line(call, f"late {RESULT}", call_uid=call.uid, seconds=4),
    ]
    kept = [
        add_line(call, "before it", seconds=-1, source="stderr"),
        add_line(call, "long after it", seconds=20, source="stderr"),
        add_line(call, "of another call", call_uid=other.uid),
        add_line(call, "connected", source="host"),
    ]
    payloads.erase(getattr(call, part))
    shown = dict(LogLine.objects.values_list("pk", "text"))
    assert {shown[line.pk] for line in gone} == {"[erased]"}
    assert [shown[line.pk] for line in kept] == [line.text for line in kept]
    assert ARGUMENT not in "".join(LogLine.objects.values_list("logger", flat=True))
    dora = client_of(person("dora", "view_server", "view_auditevent", "view_payload"))
    for query in ("got", ARGUMENT if part == "arguments" else RESULT):
        page = dora.get("/explorer/", {"q": f"in:logs in:calls {query}"}).content.decode()
        assert "<tr data-sel" not in page, "neither a line nor the call is found by it"
    assert Call.objects.get(pk=call.pk).detail == "It failed."


def test_who_may_not_read_payloads_sees_no_log_line_on_the_page_of_a_call(call: Call) -> None:
    Call.objects.update(sent_at=timezone.now())
    call.refresh_from_db()
    add_line(call, f"got {ARGUMENT}", call_uid=call.uid)
    assert ARGUMENT in client_of(person("bob", *READER)).get(f"/calls/{call.uid}/card/").content.decode()
    eve = client_of(person("eve", "view_server", "view_auditevent"))
    for path in ("", "card/"):
        assert ARGUMENT not in eve.get(f"/calls/{call.uid}/{path}").content.decode()


def test_the_page_says_what_is_erased_and_what_stays(call: Call) -> None:
    dora = client_of(person("dora", "view_server", "view_auditevent", "erase_payload"))
    page = dora.get(f"/payloads/{call.arguments.digest}/erase/").content.decode()
    for words in ("search index", "log lines", "recorded protocol messages", "Backups and earlier exports"):
        assert words in page


def test_arguments_that_are_still_to_be_sent_are_not_erased(call: Call) -> None:
    Call.objects.update(state=CallState.REQUESTED, finished_at=None)
    dpo = client_of(person("dora", "view_server", "erase_payload", "view_auditevent"))
    response = dpo.post(f"/payloads/{call.arguments.digest}/erase/", {"reason": "request 17"})
    assert response.status_code == 422
    assert "Cancel it" in response.content.decode()
    assert payloads.read(Call.objects.get().arguments) is not None


def test_the_content_of_a_personal_call_cannot_be_erased_by_who_may_not_know_of_it(call: Call) -> None:
    Call.objects.update(personal=True)
    other = client_of(person("otto", "view_server", "erase_payload"))
    assert other.post(f"/payloads/{call.arguments.digest}/erase/", {"reason": "x"}).status_code == 404
    assert payloads.read(Call.objects.get().arguments) is not None


def test_a_sealed_exchange_is_read_on_the_page_as_any_other(ann: Any) -> None:
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    made = make_call(make_session("tools"), "echo", text=ARGUMENT)
    Call.objects.filter(pk=made.pk).update(user=ann, finished_at=timezone.now(), state=CallState.FAILED)
    page = client_of(ann).get(f"/calls/{made.uid}/").content.decode()
    assert ARGUMENT in page
    assert "Encrypted" in page


def test_a_page_whose_key_is_missing_says_so(ann: Any, settings: Any, tmp_path: Any) -> None:
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    made = make_call(make_session("tools"), "echo", text=ARGUMENT)
    Call.objects.filter(pk=made.pk).update(user=ann, finished_at=timezone.now(), state=CallState.FAILED)
    settings.KEYRING_FILE = tmp_path / "missing.json"
    page = client_of(ann).get(f"/calls/{made.uid}/")
    assert page.status_code == 200
    assert "The key ring" in page.content.decode()


@pytest.mark.parametrize("path", ["/calls/{call}/result.json", "/subscriptions/{subscription}/versions/1/"])
def test_no_page_breaks_on_a_missing_key(path: str, ann: Any, settings: Any, tmp_path: Any) -> None:
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    session = make_session("tools")
    subscription = make_subscription(session)
    add_version(subscription, RESULT)
    made = make_call(session, "echo")
    result = payloads.store(PayloadKind.RESULT, json.dumps({"content": []}))
    Call.objects.filter(pk=made.pk).update(user=ann, result=result, state=CallState.SUCCEEDED)
    settings.KEYRING_FILE = tmp_path / "missing.json"
    reader = client_of(person("rhea", "view_server", "view_payload"))
    page = reader.get(path.format(call=made.uid, subscription=subscription.uid))
    assert page.status_code == 503
    assert "The key ring" in page.content.decode()


# --- other contents ------------------------------------------------------------------------------------------------------
def erasures(page: Any) -> list[str]:
    """The addresses to which its *Erase…* lead."""
    return re.findall(r'href="(/payloads/[^"]+)"', page.content.decode())


def test_a_stored_version_of_a_resource_is_recorded_when_it_is_read_and_can_be_erased() -> None:
    subscription = make_subscription(make_session("notes"))
    add_version(subscription, RESULT)
    dora = client_of(person("dora", "view_server", "view_payload", "view_auditevent", "erase_payload"))
    for path in ("", "versions/1/"):
        response = dora.get(f"/subscriptions/{subscription.uid}/{path}")
        assert response.status_code == 200
    assert readings(by="dora") == ["resource"]
    (address,) = erasures(dora.get(f"/subscriptions/{subscription.uid}/"))
    assert address == f"/payloads/{Payload.objects.get(kind=PayloadKind.RESOURCE).digest}/erase/"
    assert dora.post(address, {"reason": "request 17"}).status_code == 302
    response = dora.get(f"/subscriptions/{subscription.uid}/")
    page = response.content.decode()
    assert RESULT not in page
    assert "erased" in page
    assert erasures(response) == []
    reader = client_of(person("rhea", "view_server", "view_payload"))
    assert erasures(reader.get(f"/subscriptions/{subscription.uid}/")) == []


def test_the_answer_of_another_person_is_recorded_when_it_is_read_and_can_be_erased() -> None:
    question = a_question(FORM)
    stored = payloads.store(PayloadKind.ANSWER, json.dumps({"city": ARGUMENT}))
    ended = {"state": QuestionState.ACCEPTED, "ended_at": timezone.now(), "delivered_at": timezone.now()}
    Question.objects.filter(pk=question.pk).update(answer=stored, answered_by="ann", **ended)
    dora = client_of(person("dora", "view_server", "view_payload", "view_auditevent", "erase_payload"))
    assert ARGUMENT in dora.get(f"/inbox/{question.uid}/").content.decode()
    assert sorted(readings(by="dora")) == ["answer", "question"]
    of_answer, of_request = erasures(dora.get(f"/inbox/{question.uid}/"))
    assert of_answer == f"/payloads/{stored.digest}/erase/"
    assert of_request == f"/payloads/{question.question.digest}/erase/"
    assert dora.post(of_answer, {"reason": "request 17"}).status_code == 302
    response = dora.get(f"/inbox/{question.uid}/")
    assert ARGUMENT not in response.content.decode()
    assert erasures(response) == [of_request]
    assert dora.post(of_request, {"reason": "request 17"}).status_code == 302
    assert erasures(dora.get(f"/inbox/{question.uid}/")) == []


def test_an_answer_that_was_not_delivered_yet_is_not_erased() -> None:
    question = a_question(FORM)
    stored = payloads.store(PayloadKind.ANSWER, json.dumps({"city": ARGUMENT}))
    Question.objects.filter(pk=question.pk).update(answer=stored, state=QuestionState.ACCEPTED, answered_by="ann")
    dora = client_of(person("dora", "view_server", "view_auditevent", "erase_payload"))
    assert dora.post(f"/payloads/{stored.digest}/erase/", {"reason": "request 17"}).status_code == 422


def test_with_the_result_the_words_of_its_error_are_erased(call: Call) -> None:
    Call.objects.update(error_message=RESULT, error_data=RESULT)
    dora = client_of(person("dora", "view_server", "view_auditevent", "erase_payload"))
    dora.post(f"/payloads/{call.result.digest}/erase/", {"reason": "request 17"})
    row = Call.objects.get()
    assert (row.error_message, row.error_data, row.schema_violation) == ("", "", "")


def test_with_the_contents_the_words_of_its_task_and_the_stderr_of_a_session_that_failed_are_erased(call: Call) -> None:
    now = timezone.now()
    Call.objects.update(sent_at=now)
    seen = {"begun_at": now, "changed_at": now, "seen_at": now, "status": "failed"}
    ServerTask.objects.create(call=call, task_id="t", message=ARGUMENT, detail=f"It failed: {ARGUMENT}", **seen)
    McpSession.objects.update(stderr_tail=f"got {ARGUMENT}", fault_at=now)
    earlier = make_session("other")
    McpSession.objects.filter(pk=earlier.pk).update(stderr_tail="of another session", fault_at=now)
    payloads.erase(call.arguments)
    task = ServerTask.objects.get()
    assert (task.message, task.detail, task.status) == ("", "", "failed")
    tails = dict(McpSession.objects.values_list("pk", "stderr_tail"))
    assert tails == {call.session_id: "", earlier.pk: "of another session"}


def test_a_task_that_is_followed_on_does_not_bring_the_erased_words_back(call: Call) -> None:
    lease = make_hold(McpSession.objects.get())
    Call.objects.update(state=CallState.OUTCOME_UNKNOWN, result=None, way=ActionSource.AGENT)
    now = timezone.now()
    begun = {"begun_at": now, "changed_at": now, "seen_at": now, "status": "working", "session_id": call.session_id}
    ServerTask.objects.create(call=call, task_id="t", message=f"exporting {ARGUMENT}", **begun)
    [orphan] = server_tasks.orphans(lease.session_id)
    assert orphan.call.actor.way == ActionSource.AGENT
    payloads.erase(call.arguments)
    for status in (Status.WORKING, Status.WORKING, Status.FAILED):
        server_tasks.seen(orphan.call, lease, TaskState("t", status, f"exporting {ARGUMENT}"))
    server_tasks.ended(orphan.call, lease, CallOutcome(CallState.RPC_ERROR, error_message=f"no {ARGUMENT}"))
    task = ServerTask.objects.get()
    assert (task.message, task.detail, task.status) == ("", "", "failed")
    assert task.ended_at is not None


def test_the_words_of_a_task_are_for_those_who_may_read_the_call(call: Call, ann: Any) -> None:
    now = timezone.now()
    seen = {"begun_at": now, "changed_at": now, "seen_at": now, "status": "failed"}
    ServerTask.objects.create(call=call, task_id="t", message=f"at {ARGUMENT}", detail=f"no {RESULT}", **seen)
    for reader, readable in ((ann, True), (person("rhea", *READER), True), (person("eve", "view_server"), False)):
        page = client_of(reader).get("/servers/tools/tasks/").content.decode()
        assert f'data-task="{call.uid}"' in page
        assert [words in page for words in (f"at {ARGUMENT}", f"no {RESULT}")] == [readable, readable]


def test_stderr_of_a_failure_before_the_call_stays(call: Call) -> None:
    now = timezone.now()
    Call.objects.update(sent_at=now)
    McpSession.objects.update(stderr_tail="before", fault_at=now - timedelta(seconds=5))
    payloads.erase(call.arguments)
    assert McpSession.objects.get().stderr_tail == "before"

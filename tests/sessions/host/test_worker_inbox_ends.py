"""How a question ends without a person's answer, and how requests beyond the limits are refused, through a real
worker."""

import json
import time
from typing import Any

import pytest
from django.utils import timezone

from servers.audit.record import Actor
from servers.crypto import seal
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent
from servers.registration import registering
from servers.registration.registering import Registration
from sessions.catalog import not_offered
from sessions.enums import CallState, QuestionState
from sessions.inbox import answering
from sessions.models import Call, LogLine, McpSession, Question
from tests.sessions.host.harness import WorkerProcess, await_ready, ended, eventually, wake
from tests.sessions.host.questions import (
    answer,
    asked_by,
    asking_session,
    begin,
    open_question,
    over,
    peer_session,
    person,
    replies,
    text_of,
)
from tests.sessions.mcp.client.answers import ELICIT, FORM, SAMPLE, ask, question

pytestmark = pytest.mark.integration
VISIT = {"mode": "url", "message": "Sign in", "url": "https://a.example/x", "elicitationId": "v-1"}
TOLD = {"method": "notifications/elicitation/complete", "params": {"elicitationId": "v-1"}}


@pytest.fixture
def worker(shared_worker: WorkerProcess) -> WorkerProcess:
    return shared_worker


@pytest.fixture
def session(worker: WorkerProcess) -> McpSession:
    return asking_session()


def log_of(session: McpSession) -> str:
    return "\n".join(LogLine.objects.filter(server=session.server).values_list("text", flat=True))


# --- withdrawn questions ---------------------------------------------------------------------------------------------
def test_a_question_that_the_server_takes_back_is_withdrawn_and_not_answered(session: McpSession) -> None:
    call = begin(session, "ask", messages=[question("e-1", ELICIT, FORM)], expect=["e-1"])
    asked = asked_by(call)
    withdraw = {"method": "notifications/cancelled", "params": {"requestId": "e-1"}}
    ended(begin(session, "send", messages=[withdraw]))
    closed = over(asked)
    assert (closed.state, closed.detail) == (QuestionState.WITHDRAWN, "The server withdrew the request.")
    heard = json.loads(text_of(ended(begin(session, "heard"))))
    assert not any(message.get("id") == "e-1" for message in heard)


def test_a_visit_is_over_when_the_server_says_so(session: McpSession) -> None:
    call = begin(session, "require", elicitations=[VISIT])
    asked = asked_by(call)
    ended(begin(session, "send", messages=[TOLD]))
    closed = over(asked)
    assert (closed.state, closed.answered_by) == (QuestionState.ACCEPTED, "")
    assert closed.detail == "The server reported that the visit is complete."
    assert text_of(ended(call)) == '"done"'


def test_a_url_that_the_server_asked_for_is_accepted_when_it_says_that_the_visit_is_over(session: McpSession) -> None:
    call = begin(session, "ask", **ask(question("e-1", ELICIT, VISIT)))
    asked = asked_by(call)
    ended(begin(session, "send", messages=[TOLD | {"params": {"elicitationId": "v-2"}}]))
    ended(begin(session, "send", messages=[TOLD]))
    closed = over(asked)
    assert (closed.state, closed.answered_by) == (QuestionState.ACCEPTED, "")
    assert closed.detail == "The server reported that the visit is complete."
    ended(call)
    (reply,) = replies(call)
    assert reply["result"] == {"action": "accept"}


def test_a_server_that_dies_withdraws_its_question(session: McpSession) -> None:
    call = begin(session, "ask", **ask(question("e-1", ELICIT, FORM)))
    asked = asked_by(call)
    McpSession.objects.update(restart_requested=1)
    closed = over(asked)
    assert closed.state == QuestionState.WITHDRAWN
    ended(call)


def test_a_call_that_ends_while_it_waits_tells_the_server_that_no_one_answers(session: McpSession) -> None:
    call = begin(session, "ask", **ask(question("e-1", ELICIT, FORM)))
    asked = asked_by(call)
    Call.objects.filter(pk=call.pk).update(cancel_requested_at=timezone.now())
    wake(call, "cancel")
    assert over(asked).state == QuestionState.WITHDRAWN

    def heard() -> bool:
        return any(one.get("id") == "e-1" for one in json.loads(text_of(ended(begin(session, "heard")))))

    assert eventually(heard)


def test_a_call_that_is_cancelled_before_a_visit_has_not_run(session: McpSession) -> None:
    call = begin(session, "require", elicitations=[VISIT])
    asked = asked_by(call)
    Call.objects.filter(pk=call.pk).update(cancel_requested_at=timezone.now())
    wake(call, "cancel")
    assert over(asked).state == QuestionState.WITHDRAWN
    done = ended(call)
    assert (done.state, done.may_have_run) == (CallState.CANCELLED, False)
    assert done.detail == "It was waiting for someone to open a page, and the server had not run it."


# --- refused requests ------------------------------------------------------------------------------------------------
def test_ten_thousand_questions_at_once_become_four_items_and_a_line_in_the_log(session: McpSession) -> None:
    messages = [question(number, SAMPLE) for number in range(10_000)]
    call = begin(session, "ask", messages=messages, expect=["nothing"])
    eventually(lambda: Call.objects.filter(pk=call.pk, open_questions=4).exists())
    words = eventually(lambda: "Refused a server request" in log_of(session) and log_of(session))
    refusal = "Refused a server request: 4 requests from this server wait in the inbox."
    limit = "Limit: 4 requests waiting in the inbox per server. An operator can change it with MCPADMIN_INBOX_OPEN."
    assert f"{refusal} {limit}" in words
    assert words.count("Refused") < 10
    assert ended(begin(session, "send", messages=[])).state == CallState.SUCCEEDED
    assert Question.objects.count() == 4


def test_a_server_may_ask_ten_questions_a_minute(session: McpSession) -> None:
    begun = time.monotonic()
    for numbers in (range(4), range(4, 8), range(8, 10)):
        call = begin(session, "ask", **ask(*(question(number, ELICIT, FORM) for number in numbers)))
        for _ in numbers:
            assert answer(asked_by(call), "decline")
        ended(call)
    while admitted(call := begin(session, "ask", **ask(question("more", ELICIT, FORM)))):  # on a slow machine
        assert answer(asked_by(call), "decline")
        ended(call)
    (reply,) = replies(call)
    assert reply["error"]["message"] == (
        "Too many requests: This server sent more in the last minute. Limit: 10 inbox requests a minute per server. "
        "An operator can change it with MCPADMIN_INBOX_PER_MINUTE. Try again later."
    )
    assert 10 <= Question.objects.count() <= 10 + (time.monotonic() - begun) / 6


def admitted(call: Call) -> bool:
    """Whether its question waits for a person. One that is refused has no row, and its call ends."""
    asked, row = Question.objects.filter(call=call), Call.objects.filter(pk=call.pk)
    eventually(lambda: asked.exists() or row.get().finished_at)
    return asked.exists()


LARGE = "The request has more than 2,097,152 characters, which is a fixed limit."


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"message": "x" * 3_000_000, **{"requestedSchema": {}}}, LARGE),
        ({"mode": "url", "message": "Go", "url": 7}, "The request contains no URL."),
    ],
    ids=["large", "no url"],
)
def test_what_no_page_could_show_is_refused(session: McpSession, params: dict[str, Any], message: str) -> None:
    (reply,) = replies(begin(session, "ask", **ask(question(1, ELICIT, params))))
    assert reply["error"] == {"code": -32602, "message": message}
    assert not Question.objects.exists()


HIDDEN = "\u202e"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("javascript:alert(1)", "It is a javascript: address."),
        ("data:text/html,<script>alert(1)</script>", "It is a data: address."),
        ("file:///etc/passwd", "It is a file: address."),
        (f"https://good.example/{HIDDEN}gpj.exe", "It contains a hidden character (U+202E RIGHT-TO-LEFT OVERRIDE)"),
    ],
    ids=["javascript", "data", "file", "hidden"],
)
def test_an_address_that_no_page_would_open_is_declined_without_a_person(
    session: McpSession, url: str, why: str
) -> None:
    params = {"mode": "url", "message": "Go", "url": url, "elicitationId": "e-1"}
    (reply,) = replies(begin(session, "ask", **ask(question(1, ELICIT, params))))
    assert reply["result"] == {"action": "decline"}
    row = Question.objects.select_related("call").get()
    assert (row.state, row.answered_by) == (QuestionState.DECLINED, "")
    assert row.detail.startswith(f"The link is not safe to open. {why}")
    assert row.call is not None
    assert row.call.open_questions == 0
    end = AuditEvent.objects.get(action=AuditAction.QUESTION_END)
    details = json.loads(end.body)["details"]
    assert (end.outcome, details["state"]) == (AuditOutcome.DENIED, "declined")
    assert why in details["detail"]


def test_a_question_without_a_known_call_waits_all_the_same(session: McpSession) -> None:
    first = begin(session, "ask", **ask(question("e-1", ELICIT, FORM)))
    asked = asked_by(first)
    second = begin(session, "ask", **ask(question("e-2", ELICIT, FORM)))
    other = eventually(Question.objects.filter(call=None).select_related("call", "server", "question").first)
    assert (other.owner_name, other.server_name) == ("", "Asking")
    assert answer(other, "decline")
    assert answer(asked, "cancel")
    assert [reply["result"]["action"] for call in (first, second) for reply in replies(call)] == ["cancel", "decline"]


def test_a_secret_of_the_server_is_not_in_its_question(worker: WorkerProcess) -> None:
    session = asking_session("leaky")
    value = session.server.values.create(kind="environment", name="TOKEN", secret=True, sealed=b"x", key_id="x")
    sealed, key_id = seal("hunter2-hunter2", table=value._meta.db_table, uid=value.uid, field="sealed")
    session.server.values.filter(pk=value.pk).update(sealed=sealed, key_id=key_id)
    before = await_ready(session).connected_at
    McpSession.objects.update(restart_requested=1)
    eventually(lambda: McpSession.objects.filter(state="ready").exclude(connected_at=before).exists())
    params = {**FORM, "message": "Your token is hunter2-hunter2, is it not?"}
    begin(session, "ask", **ask(question(1, ELICIT, params)))
    found = open_question(session)
    assert found.summary == "Your token is [redacted], is it not?"
    assert "hunter2" not in json.dumps(answering.params_of(found))


# --- switches --------------------------------------------------------------------------------------------------------
def test_what_is_switched_off_is_neither_declared_nor_asked(worker: WorkerProcess) -> None:
    session = peer_session("sdk2", era="legacy", answers_elicitation=False, answers_sampling=False)
    assert await_ready(session).client_capabilities == {}
    words = {missing.feature: missing.reason for missing in not_offered.missing(await_ready(session))}
    assert words["Sampling"] == words["Elicitation"] == "Turned off under Settings, so it is not declared."
    assert ended(begin(session, "ask_person")).state != CallState.SUCCEEDED
    assert not Question.objects.exists()


def test_a_switch_takes_effect_at_once_by_a_new_connection(worker: WorkerProcess) -> None:
    session = peer_session("sdk2", era="legacy", answers_sampling=False)
    assert await_ready(session).client_capabilities.keys() == {"elicitation", "tasks"}
    admin = person("root")
    kept = Registration.of_server(session.server)
    type(session.server).objects.update(created_by=admin)
    data = Registration.of({**vars(kept), "answers_sampling": True, "answers_elicitation": False})
    registering.change(Actor.of_user(admin), admin, session.server, data, session.server.version)
    eventually(lambda: await_ready(session).client_capabilities.keys() == {"sampling", "tasks"})

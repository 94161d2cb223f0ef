"""Questions end with their deadline or their worker."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from servers.audit.record import Actor
from sessions.enums import CallState, QuestionState
from sessions.inbox import answering
from sessions.models import Call, Question, Worker
from tests.sessions.host.conftest import ShareWorker, StartWorker
from tests.sessions.host.harness import ended, eventually
from tests.sessions.host.questions import (
    answer,
    asked_by,
    asking_session,
    begin,
    over,
    peer_session,
    person,
    replies,
    text_of,
)
from tests.sessions.mcp.client.answers import ELICIT, FORM, SAMPLE, SAMPLING, ask, question

pytestmark = pytest.mark.integration


def test_a_question_that_no_one_answers_expires_and_the_server_is_told_properly(share_worker: ShareWorker) -> None:
    share_worker(MCPADMIN_INBOX_SECONDS="1")
    session = asking_session()
    form, sample = question("f", ELICIT, FORM), question("s", SAMPLE, SAMPLING)
    call = begin(session, "ask", **ask(form, sample))
    first, second = replies(call)
    assert first["result"] == {"action": "cancel"}
    assert second["error"] == {"code": -1, "message": "No answer was given"}
    for row in Question.objects.all():
        assert (row.state, row.detail) == (
            QuestionState.EXPIRED,
            "Not answered in time. Limit: 1 s to answer a request in the inbox. An operator can change it with MCPADMIN_INBOX_SECONDS. The server was notified.",
        )
    assert Call.objects.get(pk=call.pk).open_questions == 0


def test_an_expired_round_lets_the_tool_of_a_modern_server_decide(share_worker: ShareWorker) -> None:
    share_worker(MCPADMIN_INBOX_SECONDS="1")
    session = peer_session("sdk2", era="modern")
    form, sample = begin(session, "ask_person"), begin(session, "ask_model")
    assert text_of(ended(form)) == "cancel"
    done = ended(sample)
    assert (done.state, done.fault) == (CallState.FAILED, "input_refused")


def test_a_question_that_got_more_time_outlives_its_first_end(start_worker: StartWorker, settings: Any) -> None:
    start_worker(MCPADMIN_INBOX_SECONDS="2")
    settings.INBOX_SECONDS = 300.0  # the web process's setting: how much time it adds
    call = begin(asking_session(), "ask", **ask(question("e-1", ELICIT, FORM)))
    asked = asked_by(call)
    user = person()
    assert answering.extend(Actor.of_user(user), user, asked)
    eventually(lambda: timezone.now() > asked.expires_at + timedelta(seconds=1), 20)
    assert Question.objects.get(pk=asked.pk).state == QuestionState.OPEN
    assert answer(asked, "decline")
    assert over(asked).delivered_at
    assert replies(call)[0]["result"] == {"action": "decline"}


def test_a_dead_worker_leaves_no_question_open(start_worker: StartWorker) -> None:
    first = start_worker("w1")
    session = asking_session()
    call = begin(session, "ask", **ask(question("e-1", ELICIT, FORM)))
    asked = asked_by(call)
    first.kill()
    start_worker("w2")
    closed = over(asked)
    assert (closed.state, closed.answered_by) == (QuestionState.WITHDRAWN, "")
    assert ended(call).state == CallState.OUTCOME_UNKNOWN
    assert not answer(closed, "decline")


def test_a_worker_that_stops_in_order_withdraws_what_still_waits(start_worker: StartWorker) -> None:
    worker = start_worker(MCPADMIN_DRAIN_SECONDS="1")
    call = begin(asking_session(), "ask", **ask(question("e-1", ELICIT, FORM)))
    asked = asked_by(call)
    worker.stop()
    assert not Worker.objects.exists()
    assert over(asked).state == QuestionState.WITHDRAWN
    assert Call.objects.get(pk=call.pk).open_questions == 0

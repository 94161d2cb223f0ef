"""Questions of official SDK servers wait as rows through a real worker until a person answers."""

import json

import pytest
from django.utils import timezone

from servers.audit import payloads
from servers.enums import AuditAction, TransportKind
from servers.models import AuditEvent
from sessions import hints
from sessions.enums import CallState, QuestionState
from sessions.models import Call, McpSession, Question
from tests.peers.peers import run_peer
from tests.sessions.host.harness import WorkerProcess, await_ready, ended, eventually, wake
from tests.sessions.host.make import make_session
from tests.sessions.host.questions import answer, asked_by, begin, over, peer_session, text_of

pytestmark = pytest.mark.integration
PEERS = [("sdk1", "legacy"), pytest.param("sdk2", "legacy", marks=pytest.mark.long), ("sdk2", "modern")]
CITY = {"city": "Paris", "visits": "3"}
SAID = {"content": "Four.", "model": "grace", "stopReason": "endTurn"}


@pytest.fixture
def worker(shared_worker: WorkerProcess) -> WorkerProcess:
    return shared_worker


@pytest.mark.parametrize(("peer", "era"), PEERS)
def test_a_form_is_answered_by_someone_else_and_the_call_goes_on(worker: WorkerProcess, peer: str, era: str) -> None:
    session = peer_session(peer, era=era)
    call = begin(session, "ask_person")
    question = asked_by(call)
    assert (question.kind, question.owner_name, question.summary) == ("form", "ada", "Which city do you mean?")
    assert question.origin == ("round" if era == "modern" else "request")
    assert Call.objects.get(pk=call.pk).open_questions == 1
    assert answer(question, "accept", CITY)
    done = ended(call)
    assert (done.state, text_of(done), done.open_questions) == (CallState.SUCCEEDED, "accept: Paris, 3", 0)
    closed = over(question)
    assert (closed.state, closed.answered_by, closed.detail) == (QuestionState.ACCEPTED, "grace", "")


@pytest.mark.parametrize("era", [pytest.param("legacy", marks=pytest.mark.long), "modern"])
def test_over_http_each_call_knows_its_own_question(worker: WorkerProcess, era: str) -> None:
    with run_peer("sdk2", "http") as url:
        session = await_ready(make_session(transport=TransportKind.STREAMABLE_HTTP, command="", url=url, era=era), 40)
        form, sample = begin(session, "ask_person"), begin(session, "ask_model")
        questions = [asked_by(call) for call in (form, sample)]
        assert [question.kind for question in questions] == ["form", "sampling"]
        assert answer(questions[1], "accept", SAID)
        assert text_of(ended(sample)) == "grace says: Four."
        assert answer(questions[0], "accept", CITY)
        assert text_of(ended(form)) == "accept: Paris, 3"


@pytest.mark.parametrize(("peer", "era"), PEERS)
def test_a_person_answers_in_the_place_of_a_model(worker: WorkerProcess, peer: str, era: str) -> None:
    session = peer_session(peer, era=era)
    call = begin(session, "ask_model", question="What is 2 + 2?")
    question = asked_by(call)
    assert (question.kind, question.summary) == ("sampling", "What is 2 + 2?")
    assert answer(question, "accept", SAID)
    done = ended(call)
    assert (done.state, text_of(done)) == (CallState.SUCCEEDED, "grace says: Four.")


@pytest.mark.parametrize(("peer", "era"), PEERS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_declining_and_cancelling_are_distinguished(worker: WorkerProcess, peer: str, era: str, action: str) -> None:
    session = peer_session(peer, era=era)
    call = begin(session, "ask_person")
    question = asked_by(call)
    assert answer(question, action)
    done = ended(call)
    assert (done.state, text_of(done)) == (CallState.SUCCEEDED, action)
    assert over(question).state == {"decline": "declined", "cancel": "cancelled"}[action]


def test_a_declined_sample_is_an_error_of_the_person_for_a_legacy_tool(worker: WorkerProcess) -> None:
    call = begin(peer_session("sdk2", era="legacy"), "ask_model")
    assert answer(asked_by(call), "decline")
    done = ended(call)
    assert (done.state, done.error_code, done.error_message) == (CallState.RPC_ERROR, -1, "Declined by a person.")


def test_a_declined_sample_ends_a_modern_call_with_words(worker: WorkerProcess) -> None:
    call = begin(peer_session("sdk2", era="modern"), "ask_model")
    assert answer(asked_by(call), "decline")
    done = ended(call)
    assert (done.state, done.fault) == (CallState.FAILED, "input_refused")
    assert "Declined by a person." in done.detail


def test_a_page_to_visit_is_asked_for_and_both_meanings_of_accept_are_kept_apart(worker: WorkerProcess) -> None:
    session = peer_session("everything")
    url = "https://a.example/login"
    call = begin(session, "trigger-url-elicitation", url=url, errorPath=True)
    visit = asked_by(call)
    assert (visit.kind, visit.origin) == ("url", "error")
    assert answer(visit, "accept")
    begins = eventually(Question.objects.filter(call=call, origin="request").select_related("question").first)
    assert (begins.kind, begins.state) == ("url", QuestionState.OPEN)
    assert json.loads(payloads.read(begins.question) or "")["url"] == url
    assert answer(begins, "accept")
    assert ended(call).state == CallState.SUCCEEDED
    assert [over(row).state for row in (visit, begins)] == [QuestionState.ACCEPTED] * 2


def test_an_answer_whose_message_was_lost_is_found_by_the_tick(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = begin(peer_session("sdk1"), "ask_person")
    question = asked_by(call)
    monkeypatch.setattr(hints, "wake_worker", lambda *anything: None)
    assert answer(question, "accept", CITY)
    assert ended(call).state == CallState.SUCCEEDED


def test_question_and_answer_are_in_the_audit_log_by_their_digests_only(worker: WorkerProcess) -> None:
    call = begin(peer_session("sdk2", era="modern"), "ask_person")
    question = asked_by(call)
    assert answer(question, "accept", CITY)
    closed = over(question)
    ended(call)
    events = AuditEvent.objects.filter(call_uid=call.uid, action__startswith="inbox").order_by("seq")
    assert [(event.action, event.actor_name) for event in events] == [
        (AuditAction.QUESTION_RECEIVE, "mcpadmin"),
        (AuditAction.QUESTION_ANSWER, "grace"),
    ]
    assert [json.loads(event.body)["digests"] for event in events] == [
        {"question": question.question.digest},
        {"answer": closed.answer.digest},
    ]
    assert not any("Paris" in event.body or "Which city" in event.body for event in events)


def test_a_cancelled_call_takes_its_question_with_it(worker: WorkerProcess) -> None:
    session = peer_session("sdk1")
    call = begin(session, "ask_person")
    question = asked_by(call)
    cancel(call)
    assert ended(call).state == CallState.CANCELLED
    closed = over(question)
    assert (closed.state, closed.detail) == (QuestionState.WITHDRAWN, "The call ended before anyone answered.")
    assert not answer(closed, "accept", CITY)
    assert eventually(lambda: Call.objects.get(pk=call.pk, open_questions=0))


def test_a_call_that_is_cancelled_between_two_rounds_does_not_claim_that_its_server_was_notified(
    worker: WorkerProcess,
) -> None:
    call = begin(peer_session("sdk2", era="modern"), "ask_person")
    question = asked_by(call)
    cancel(call)
    done = ended(call)
    assert (done.state, done.may_have_run) == (CallState.CANCELLED, True)
    words = "It waited for an answer to the server's request, so there was nothing to cancel on the server."
    assert done.detail == f"{words} The tool may have run."
    assert over(question).state == QuestionState.WITHDRAWN


def test_a_session_that_closes_withdraws_what_it_asked(worker: WorkerProcess) -> None:
    session = peer_session("sdk1")
    call = begin(session, "ask_person")
    question = asked_by(call)
    McpSession.objects.update(desired="closed")
    closed = over(question)
    assert closed.state == QuestionState.WITHDRAWN
    ended(call)


def test_two_admins_at_once_and_one_answer_counts(worker: WorkerProcess) -> None:
    call = begin(peer_session("sdk1"), "ask_person")
    question = asked_by(call)
    first, second = answer(question, "accept", CITY, by="grace"), answer(question, "decline", by="bob")
    assert (first, second) == (True, False)
    assert text_of(ended(call)) == "accept: Paris, 3"
    assert Question.objects.get(pk=question.pk).answered_by == "grace"


def cancel(call: Call) -> None:
    Call.objects.filter(pk=call.pk).update(cancel_requested_at=timezone.now())
    wake(call, "cancel")

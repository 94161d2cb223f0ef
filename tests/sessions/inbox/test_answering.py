"""The life of a question: received by the session's owner, taken and answered by people, ended exactly once."""

import json
import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.audit.writer import writer
from servers.crypto import SealError
from servers.enums import ActionSource, AuditAction, PayloadKind
from servers.models import AuditEvent, Payload, Unredacted
from sessions.calls import claims
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.enums import QuestionKind, QuestionState
from sessions.housekeeping import dead_workers, due_calls
from sessions.inbox import answering, card, questions, reads
from sessions.inbox.answering import SubmittedArguments, Unfit
from sessions.inbox.questions import NewQuestion
from sessions.models import Call, McpSession, Question, Worker
from tests.sessions.host.make import make_call, make_hold, make_me, make_session, make_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
FORM = {
    "message": "Which city?",
    "requestedSchema": {
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 2}, "visits": {"type": "integer", "default": 1}},
        "required": ["city"],
    },
}


def person(name: str, *permissions: str) -> Any:
    made = get_user_model()._default_manager.create_user(name)
    made.user_permissions.set(Permission.objects.filter(codename__in=["view_server", *permissions]))
    return made


@pytest.fixture
def ada() -> Any:
    return person("ada", "answer_question")


@pytest.fixture
def grace() -> Any:
    return person("grace", "answer_question")


@pytest.fixture
def lease() -> Lease:
    return make_hold(make_session())


@pytest.fixture
def pending(lease: Lease, ada: Any) -> PendingCall:
    """A claimed call that was just sent."""
    call = make_call(McpSession.objects.get(pk=lease.session_id))
    Call.objects.filter(pk=call.pk).update(user=ada)
    found = claims.read_pending_call(call.uid)
    assert found is not None
    assert claims.claim(found, lease)
    return found


def ask(lease: Lease, pending: PendingCall | None = None, params: Any = None, **fields: Any) -> Question | None:
    told = {"uid": uuid.uuid4(), "kind": QuestionKind.FORM, "method": "elicitation/create", "origin": "request"}
    told |= {"summary": "Which city?", "params": json.dumps(params or FORM), "call": pending}
    asking = NewQuestion(**(told | fields))
    return writer().submit_and_wait(lambda: questions.receive(asking, lease), questions.received)


def asked(lease: Lease, pending: PendingCall | None = None, **more: Any) -> Question:
    question = ask(lease, pending, **more)
    assert question is not None
    return question


def again(question: Question) -> Question:
    return Question.objects.select_related("call", "server", "answer", "question").get(pk=question.pk)


def waiting(pending: PendingCall) -> tuple[int, int]:
    call = Call.objects.get(pk=pending.pk)
    return call.open_questions, call.version


def write(job: Any) -> Any:
    """Write rows and events in one commit, as the worker's writer does."""
    return writer().submit_and_wait(job, list)


# --- received --------------------------------------------------------------------------------------------------------
def test_a_question_belongs_to_the_call_and_to_the_user_who_made_it(lease: Lease, pending: PendingCall) -> None:
    before = waiting(pending)
    question = asked(lease, pending)
    assert (question.call_id, question.owner_name, question.epoch) == (pending.pk, "ada", lease.epoch)
    assert waiting(pending) == (before[0] + 1, before[1] + 1)
    assert answering.params_of(question) == FORM


def test_a_question_that_names_no_call_is_on_the_cards_of_the_calls_that_may_have_caused_it(
    lease: Lease, pending: PendingCall
) -> None:
    before = waiting(pending)
    question = asked(lease)
    assert waiting(pending) == (before[0], before[1] + 1), "its card is rendered again"
    call = Call.objects.get(pk=pending.pk)
    assert [one.pk for one in reads.possibly_asked_by(call)] == [question.pk]
    card = render_to_string("calls/_card.html", {"call": call, "may_read": True})
    assert f'data-waiting-question="{question.uid}"' in card
    assert "the server did not say which one this request is for" in card
    assert write(lambda: questions.withdraw(question.uid, "over."))
    assert waiting(pending) == (before[0], before[1] + 2)
    assert "data-waiting-question" not in render_to_string("calls/_card.html", {"call": call, "may_read": True})


def test_the_same_question_received_twice_is_one_row(lease: Lease, pending: PendingCall) -> None:
    uid = uuid.uuid4()
    assert asked(lease, pending, uid=uid).pk == asked(lease, pending, uid=uid).pk
    assert waiting(pending)[0] == 1


def test_a_worker_that_lost_the_session_can_ask_no_one(lease: Lease) -> None:
    McpSession.objects.update(epoch=lease.epoch + 1)
    assert ask(lease) is None
    assert not Question.objects.exists()


def test_a_call_that_is_over_asks_no_one(lease: Lease, pending: PendingCall) -> None:
    Call.objects.update(state="cancelled")
    assert ask(lease, pending) is None


@pytest.mark.parametrize(("total", "seconds"), [(100.0, 95), (10_000.0, 600)], ids=["call", "setting"])
def test_a_question_expires_before_the_total_time_of_its_call(
    lease: Lease, pending: PendingCall, total: float, seconds: int
) -> None:
    sent = timezone.now()
    Call.objects.update(sent_at=sent)
    question = asked(lease, pending, total=total, patience=600.0)
    began = sent if total == 100.0 else question.created_at
    assert question.expires_at == began + timedelta(seconds=seconds)


def test_without_time_left_no_one_is_asked(lease: Lease, pending: PendingCall) -> None:
    assert ask(lease, pending, total=4.0) is None


# --- taken -----------------------------------------------------------------------------------------------------------
def test_whoever_takes_a_question_owns_it_and_the_second_is_too_late(
    lease: Lease, pending: PendingCall, ada: Any, grace: Any
) -> None:
    seen = again(asked(lease, pending))
    bob = person("bob", "answer_question")
    assert answering.take(Actor.of_user(grace), grace, seen)
    assert not answering.take(Actor.of_user(bob), bob, seen)
    assert (again(seen).owner_id, again(seen).owner_name) == (grace.pk, "grace")
    assert answering.take(Actor.of_user(bob), bob, again(seen))
    taken = AuditEvent.objects.filter(action=AuditAction.QUESTION_TAKE).order_by("seq")
    assert list(taken.values_list("actor_name", flat=True)) == ["grace", "bob"]


def test_a_question_that_is_over_cannot_be_taken(lease: Lease, ada: Any) -> None:
    question = again(asked(lease))
    assert answering.answer(Actor.of_user(ada), ada, question, "decline")
    assert not answering.take(Actor.of_user(ada), ada, again(question))


# --- answered --------------------------------------------------------------------------------------------------------
def test_an_answer_is_stored_checked_and_of_the_right_types(lease: Lease, pending: PendingCall, grace: Any) -> None:
    question = again(asked(lease, pending))
    given = SubmittedArguments(value={"city": "Paris", "visits": "3"})
    assert answering.answer(Actor.of_user(grace), grace, question, "accept", given)
    closed = again(question)
    assert (closed.state, closed.answered_by, closed.version) == ("accepted", "grace", 2)
    assert reads.stored_answer(closed) == {"city": "Paris", "visits": 3}
    assert waiting(pending)[0] == 0
    assert reads.settled([closed.uid])[0].content == {"city": "Paris", "visits": 3}


def test_an_answer_is_read_by_who_gave_it_and_not_by_a_later_account_of_that_name(lease: Lease, grace: Any) -> None:
    question, taker = again(asked(lease)), person("bob", "answer_question")
    answering.take(Actor.of_user(taker), taker, question)
    answering.answer(
        Actor.of_user(grace), grace, again(question), "accept", SubmittedArguments(value={"city": "Paris"})
    )
    assert card.answer_of(grace, again(question)) == {"city": "Paris"}
    assert card.answer_of(taker, again(question)) is None
    grace.delete()
    namesake = person("grace", "answer_question")
    assert again(question).answered_by == namesake.get_username()
    assert card.answer_of(namesake, again(question)) is None


def test_a_namesake_of_who_answered_reads_an_answer_on_record(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    answering.answer(Actor.of_user(grace), grace, question, "accept", SubmittedArguments(value={"city": "Paris"}))
    grace.delete()
    namesake = person("grace", "answer_question", "view_payload")
    browser = Client()
    browser.force_login(namesake)
    assert "Paris" in browser.get(f"/inbox/{question.uid}/").content.decode()
    assert AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ, actor_id=namesake.pk).exists()


def test_an_answer_that_does_not_fit_leaves_the_question_open(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    with pytest.raises(Unfit) as caught:
        answering.answer(
            Actor.of_user(grace), grace, question, "accept", SubmittedArguments(value={"city": "P", "visits": "many"})
        )
    assert caught.value.errors.keys() == {"/city", "/visits"}
    assert again(question).state == "open"


def test_an_answer_of_a_program_that_does_not_fit_ends_the_question_and_is_no_decision_of_a_person(
    lease: Lease, pending: PendingCall, grace: Any
) -> None:
    question, words = again(asked(lease, pending)), "The agent's answer was not valid. 1 invalid field."
    bob = person("bob")
    with pytest.raises(access.Denied):
        answering.dismiss(Actor.of_user(bob), bob, question, words)
    actor = Actor.of_user(grace, way=ActionSource.AGENT)
    assert answering.dismiss(actor, grace, question, words)
    assert not answering.dismiss(actor, grace, question, words)
    closed = again(question)
    assert (closed.state, closed.answered_by, closed.detail) == ("cancelled", "", words)
    assert reads.settled([closed.uid])[0].detail == words
    assert waiting(pending)[0] == 0
    assert not AuditEvent.objects.filter(action=AuditAction.QUESTION_ANSWER).exists()
    event = AuditEvent.objects.get(action=AuditAction.QUESTION_END)
    assert json.loads(event.body)["details"]["detail"] == words
    assert (event.actor_name, event.way) == ("grace", "agent")


def test_without_permission_nothing_is_answered_and_the_denial_is_recorded(lease: Lease) -> None:
    question, bob = again(asked(lease)), person("bob")
    for act in (answering.take, lambda *who: answering.answer(*who, "decline")):
        with pytest.raises(access.Denied):
            act(Actor.of_user(bob), bob, question)
    assert again(question).state == "open"
    assert AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY, actor_name="bob").count() == 2


def test_of_ten_people_who_answer_at_once_one_wins(lease: Lease, pending: PendingCall, grace: Any) -> None:
    question, start = again(asked(lease, pending)), threading.Barrier(10)
    won: list[bool] = []

    def answer() -> None:
        start.wait()
        won.append(answering.answer(Actor.of_user(grace), grace, question, "decline"))

    threads = [threading.Thread(target=answer) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 9 + [True]
    assert waiting(pending)[0] == 0
    assert AuditEvent.objects.filter(action=AuditAction.QUESTION_ANSWER).count() == 1


def test_an_answer_after_the_time_is_over_is_none(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    Question.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not answering.answer(Actor.of_user(grace), grace, question, "decline")


# --- closed without an answer ----------------------------------------------------------------------------------------
def test_the_time_over_and_an_answer_in_the_last_moment_the_first_in_the_row_counts(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    assert answering.answer(Actor.of_user(grace), grace, question, "decline")
    settled, events = write_pair(question)
    assert (settled.state, events) == ("declined", [])
    other = asked(lease)
    Question.objects.filter(pk=other.pk).update(expires_at=timezone.now())
    settled, events = write_pair(other)
    assert (settled.state, len(events)) == ("expired", 1)
    assert not answering.answer(Actor.of_user(grace), grace, again(other), "decline")


def test_an_answer_that_cannot_be_decrypted_holds_up_no_other_and_is_given_up_at_the_deadline(
    lease: Lease, grace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, other = again(asked(lease)), again(asked(lease))
    for question in (lost, other):
        assert answering.answer(
            Actor.of_user(grace), grace, question, "accept", SubmittedArguments(value={"city": "Oslo"})
        )
    real, unreadable = payloads.to_send, again(lost).answer_id

    def to_send(payload: Payload) -> str | None:
        if payload.pk == unreadable:
            raise SealError("The key ring cannot be read.")
        return real(payload)

    monkeypatch.setattr(payloads, "to_send", to_send)
    assert [found.uid for found in reads.settled([lost.uid, other.uid])] == [other.uid]
    ends, _ = write_pair(lost)
    assert ends == lost.expires_at, "the key ring may be back before"
    Question.objects.update(expires_at=timezone.now())
    settled, _ = write_pair(lost)
    assert (settled.state, settled.content) == ("withdrawn", None)
    assert (again(lost).state, again(lost).delivered_at) == ("accepted", None)
    assert again(lost).detail == "The answer cannot be decrypted. It could not be delivered."


def write_pair(question: Question) -> Any:
    return writer().submit_and_wait(lambda: questions.expire(question.uid), lambda found: found[1])


def test_an_answer_that_no_one_waited_for_any_more_says_so(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    assert answering.answer(Actor.of_user(grace), grace, question, "decline")
    write(lambda: questions.withdraw(question.uid, "The call ended."))
    assert (again(question).state, again(question).detail) == (
        "declined",
        "The call ended. It could not be delivered.",
    )


def test_a_dead_worker_leaves_no_question_open(lease: Lease, pending: PendingCall, grace: Any) -> None:
    left, answered = asked(lease, pending), again(asked(lease, pending))
    assert answering.answer(Actor.of_user(grace), grace, answered, "decline")
    events = (
        writer()
        .submit_and_wait(
            lambda: dead_workers.reap(Worker.objects.filter(pk=lease.worker_id)), lambda reaped: reaped.events
        )
        .events
    )
    assert {event.action for event in events} == {AuditAction.QUESTION_END, AuditAction.CALL_FINISH}
    assert (again(left).state, again(left).detail) == ("withdrawn", questions.WORKER_GONE)
    assert (again(answered).state, again(answered).detail) == ("declined", questions.NOT_DELIVERED)
    assert waiting(pending)[0] == 0


def with_a_masked_answer(question: Question) -> None:
    """Answered, with a value that is stored masked and waits unmasked for its delivery."""
    stored = payloads.store(PayloadKind.ANSWER, "{}", redacted=1)
    unmasked = payloads.unredacted("{}")
    unmasked.payload = stored
    unmasked.save()
    Question.objects.filter(pk=question.pk).update(answer=stored, state=QuestionState.ACCEPTED)


def test_of_an_answer_that_cannot_be_delivered_nothing_is_kept_unmasked(lease: Lease) -> None:
    withdrawn, left, other = asked(lease), asked(lease), asked(lease)
    for question in (withdrawn, left, other):
        with_a_masked_answer(question)
    Question.objects.filter(pk=other.pk).update(worker_uid=make_worker(make_me("w2@here")).uid)
    write(lambda: questions.withdraw(withdrawn.uid, "The call ended."))
    assert Unredacted.objects.count() == 2
    writer().submit_and_wait(
        lambda: dead_workers.reap(Worker.objects.filter(pk=lease.worker_id)), lambda done: done.events
    )
    assert Unredacted.objects.get().payload_id == Question.objects.get(pk=other.pk).answer_id


def test_what_was_handed_over_stays_as_it_is_when_the_worker_dies(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    assert answering.answer(Actor.of_user(grace), grace, question, "decline")
    questions.delivered(question.uid)
    dead_workers.reap(Worker.objects.filter(pk=lease.worker_id))
    assert again(question).detail == ""


def test_a_question_whose_workers_row_is_gone_is_withdrawn_by_the_next_burial(lease: Lease) -> None:
    question = asked(lease)
    Worker.objects.all().delete()
    make_worker()
    write(lambda: dead_workers.reap([]).events)
    assert again(question).state == "withdrawn"


def test_a_question_past_its_time_lapses_even_when_its_worker_forgot_it(lease: Lease) -> None:
    question, young = asked(lease), asked(lease)
    Question.objects.filter(pk=question.pk).update(expires_at=timezone.now() - questions.EXPIRE_AFTER * 2)
    write(due_calls.expire)
    assert [again(row).state for row in (question, young)] == ["expired", "open"]


def test_the_web_ends_what_is_due_only_while_no_worker_lives(lease: Lease) -> None:
    question = asked(lease)
    Question.objects.update(expires_at=timezone.now() - questions.EXPIRE_AFTER * 2)
    assert questions.expire_without_worker() == 0
    Worker.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    assert questions.expire_without_worker() == 1
    writer().submit_and_wait(lambda: None)
    assert again(question).state == "expired"


def test_a_question_outlives_its_server(lease: Lease, pending: PendingCall, grace: Any) -> None:
    question = asked(lease, pending)
    question.server.delete()
    kept = again(question)
    assert (kept.server_id, kept.server_name, kept.state) == (None, "Files", "open")
    write(lambda: questions.withdraw(kept.uid, "Gone."))
    assert again(kept).state == "withdrawn"


def test_an_erased_answer_is_not_handed_over_as_an_empty_one(lease: Lease, grace: Any) -> None:
    question = again(asked(lease))
    assert answering.answer(
        Actor.of_user(grace), grace, question, "accept", SubmittedArguments(value={"city": "Paris"})
    )
    payloads.erase(again(question).answer)
    assert reads.settled([question.uid])[0].content is None

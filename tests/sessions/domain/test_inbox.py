"""Questions in their rows: received by the owner of the session, taken and answered by people, ended once."""

import json
import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.audit.writer import writer
from servers.enums import AuditAction
from servers.models import AuditEvent
from sessions.domain import claims, inbox, inbox_read, ownership, questions
from sessions.domain.claims import Order
from sessions.domain.inbox import Given, Unfit
from sessions.domain.lifecycle import Hold
from sessions.domain.questions import Asking
from sessions.enums import QuestionKind
from sessions.models import Call, McpSession, Question, Worker
from tests.sessions.host.make import make_call, make_hold, make_session, make_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
FORM = {
    "message": "Which city?",
    "requestedSchema": {
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 2}, "visits": {"type": "integer", "default": 1}},
        "required": ["city"],
    },
}


def person(name: str, *rights: str) -> Any:
    made = get_user_model()._default_manager.create_user(name)
    made.user_permissions.set(Permission.objects.filter(codename__in=["view_server", *rights]))
    return made


@pytest.fixture
def ada() -> Any:
    return person("ada", "answer_question")


@pytest.fixture
def grace() -> Any:
    return person("grace", "answer_question")


@pytest.fixture
def hold() -> Hold:
    return make_hold(make_session())


@pytest.fixture
def order(hold: Hold, ada: Any) -> Order:
    """Of a call that was sent a moment ago."""
    call = make_call(McpSession.objects.get(pk=hold.session_id))
    Call.objects.filter(pk=call.pk).update(user=ada)
    found = claims.read_order(call.uid)
    assert found is not None
    assert claims.claim(found, hold)
    return found


def ask(hold: Hold, order: Order | None = None, params: Any = None, **fields: Any) -> Question | None:
    told = {"uid": uuid.uuid4(), "kind": QuestionKind.FORM, "method": "elicitation/create", "origin": "request"}
    told |= {"summary": "Which city?", "params": json.dumps(params or FORM), "order": order}
    asking = Asking(**(told | fields))
    return writer().submit_and_wait(lambda: questions.receive(asking, hold), questions.received)


def asked(hold: Hold, order: Order | None = None, **more: Any) -> Question:
    question = ask(hold, order, **more)
    assert question is not None
    return question


def again(question: Question) -> Question:
    return Question.objects.select_related("call", "server", "answer", "question").get(pk=question.pk)


def waiting(order: Order) -> tuple[int, int]:
    call = Call.objects.get(pk=order.pk)
    return call.open_questions, call.version


def write(job: Any) -> Any:
    """As the worker's writer: the rows and their events in one commit."""
    return writer().submit_and_wait(job, list)


# --- received --------------------------------------------------------------------------------------------------------
def test_a_question_belongs_to_the_call_and_to_whoever_made_it(hold: Hold, order: Order) -> None:
    before = waiting(order)
    question = asked(hold, order)
    assert (question.call_id, question.owner_name, question.epoch) == (order.pk, "ada", hold.epoch)
    assert waiting(order) == (before[0] + 1, before[1] + 1)
    assert inbox.params_of(question) == FORM


def test_the_same_question_received_twice_is_one_row(hold: Hold, order: Order) -> None:
    uid = uuid.uuid4()
    assert asked(hold, order, uid=uid).pk == asked(hold, order, uid=uid).pk
    assert waiting(order)[0] == 1


def test_a_worker_that_lost_the_session_can_ask_nobody(hold: Hold) -> None:
    McpSession.objects.update(epoch=hold.epoch + 1)
    assert ask(hold) is None
    assert not Question.objects.exists()


def test_a_call_that_is_over_asks_nobody(hold: Hold, order: Order) -> None:
    Call.objects.update(state="cancelled")
    assert ask(hold, order) is None


@pytest.mark.parametrize(("total", "seconds"), [(100.0, 95), (10_000.0, 600)], ids=["call", "setting"])
def test_a_question_expires_before_the_total_time_of_its_call(
    hold: Hold, order: Order, total: float, seconds: int
) -> None:
    sent = timezone.now()
    Call.objects.update(sent_at=sent)
    question = asked(hold, order, total=total, patience=600.0)
    began = sent if total == 100.0 else question.created_at
    assert question.expires_at == began + timedelta(seconds=seconds)


def test_without_time_left_nobody_is_asked(hold: Hold, order: Order) -> None:
    assert ask(hold, order, total=4.0) is None


# --- taken -----------------------------------------------------------------------------------------------------------
def test_whoever_takes_a_question_owns_it_and_the_second_is_too_late(
    hold: Hold, order: Order, ada: Any, grace: Any
) -> None:
    seen = again(asked(hold, order))
    bob = person("bob", "answer_question")
    assert inbox.take(Actor.of_user(grace), grace, seen)
    assert not inbox.take(Actor.of_user(bob), bob, seen)
    assert (again(seen).owner_id, again(seen).owner_name) == (grace.pk, "grace")
    assert inbox.take(Actor.of_user(bob), bob, again(seen))
    taken = AuditEvent.objects.filter(action=AuditAction.QUESTION_TAKE).order_by("seq")
    assert list(taken.values_list("actor_name", flat=True)) == ["grace", "bob"]


def test_a_question_that_is_over_cannot_be_taken(hold: Hold, ada: Any) -> None:
    question = again(asked(hold))
    assert inbox.answer(Actor.of_user(ada), ada, question, "decline")
    assert not inbox.take(Actor.of_user(ada), ada, again(question))


# --- answered --------------------------------------------------------------------------------------------------------
def test_an_answer_is_stored_checked_and_of_the_right_types(hold: Hold, order: Order, grace: Any) -> None:
    question = again(asked(hold, order))
    given = Given(value={"city": "Paris", "visits": "3"})
    assert inbox.answer(Actor.of_user(grace), grace, question, "accept", given)
    closed = again(question)
    assert (closed.state, closed.answered_by, closed.version) == ("accepted", "grace", 2)
    assert inbox_read.answer_of(closed) == {"city": "Paris", "visits": 3}
    assert waiting(order)[0] == 0
    assert inbox_read.settled([closed.uid])[0].content == {"city": "Paris", "visits": 3}


def test_an_answer_that_does_not_fit_leaves_the_question_open(hold: Hold, grace: Any) -> None:
    question = again(asked(hold))
    with pytest.raises(Unfit) as caught:
        inbox.answer(Actor.of_user(grace), grace, question, "accept", Given(value={"city": "P", "visits": "many"}))
    assert caught.value.errors.keys() == {"/city", "/visits"}
    assert again(question).state == "open"


def test_without_the_right_nothing_is_answered_and_the_denial_is_recorded(hold: Hold) -> None:
    question, bob = again(asked(hold)), person("bob")
    for act in (inbox.take, lambda *who: inbox.answer(*who, "decline")):
        with pytest.raises(access.Denied):
            act(Actor.of_user(bob), bob, question)
    assert again(question).state == "open"
    assert AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY, actor_name="bob").count() == 2


def test_of_ten_people_who_answer_at_once_one_wins(hold: Hold, order: Order, grace: Any) -> None:
    question, start = again(asked(hold, order)), threading.Barrier(10)
    won: list[bool] = []

    def answer() -> None:
        start.wait()
        won.append(inbox.answer(Actor.of_user(grace), grace, question, "decline"))

    threads = [threading.Thread(target=answer) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 9 + [True]
    assert waiting(order)[0] == 0
    assert AuditEvent.objects.filter(action=AuditAction.QUESTION_ANSWER).count() == 1


def test_an_answer_after_the_time_is_over_is_none(hold: Hold, grace: Any) -> None:
    question = again(asked(hold))
    Question.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert not inbox.answer(Actor.of_user(grace), grace, question, "decline")


# --- ended without an answer -----------------------------------------------------------------------------------------
def test_the_time_over_and_an_answer_in_the_last_moment_the_first_in_the_row_counts(hold: Hold, grace: Any) -> None:
    question = again(asked(hold))
    assert inbox.answer(Actor.of_user(grace), grace, question, "decline")
    settled, events = write_pair(question)
    assert (settled.state, events) == ("declined", [])
    other = asked(hold)
    Question.objects.filter(pk=other.pk).update(expires_at=timezone.now())
    settled, events = write_pair(other)
    assert (settled.state, len(events)) == ("expired", 1)
    assert not inbox.answer(Actor.of_user(grace), grace, again(other), "decline")


def write_pair(question: Question) -> Any:
    return writer().submit_and_wait(lambda: questions.expire(question.uid), lambda found: found[1])


def test_an_answer_that_nobody_waited_for_any_more_says_so(hold: Hold, grace: Any) -> None:
    question = again(asked(hold))
    assert inbox.answer(Actor.of_user(grace), grace, question, "decline")
    write(lambda: questions.withdraw(question.uid, "The call ended."))
    assert (again(question).state, again(question).detail) == (
        "declined",
        "The call ended. It could not be handed over.",
    )


def test_a_dead_worker_leaves_no_question_open(hold: Hold, order: Order, grace: Any) -> None:
    left, answered = asked(hold, order), again(asked(hold, order))
    assert inbox.answer(Actor.of_user(grace), grace, answered, "decline")
    events = (
        writer()
        .submit_and_wait(lambda: ownership.bury(Worker.objects.filter(pk=hold.worker_id)), lambda burial: burial.events)
        .events
    )
    assert {event.action for event in events} == {AuditAction.QUESTION_END, AuditAction.CALL_FINISH}
    assert (again(left).state, again(left).detail) == ("withdrawn", questions.WORKER_GONE)
    assert (again(answered).state, again(answered).detail) == ("declined", questions.NOT_DELIVERED)
    assert waiting(order)[0] == 0


def test_what_was_handed_over_stays_as_it_is_when_the_worker_dies(hold: Hold, grace: Any) -> None:
    question = again(asked(hold))
    assert inbox.answer(Actor.of_user(grace), grace, question, "decline")
    questions.delivered(question.uid)
    ownership.bury(Worker.objects.filter(pk=hold.worker_id))
    assert again(question).detail == ""


def test_a_question_whose_workers_row_is_gone_is_withdrawn_by_the_next_burial(hold: Hold) -> None:
    question = asked(hold)
    Worker.objects.all().delete()
    make_worker()
    write(lambda: ownership.bury([]).events)
    assert again(question).state == "withdrawn"


def test_a_question_past_its_time_lapses_even_when_its_worker_forgot_it(hold: Hold) -> None:
    question, young = asked(hold), asked(hold)
    Question.objects.filter(pk=question.pk).update(expires_at=timezone.now() - questions.LAPSE_AFTER * 2)
    write(ownership.lapse)
    assert [again(row).state for row in (question, young)] == ["expired", "open"]


def test_the_web_ends_what_is_due_only_while_no_worker_lives(hold: Hold) -> None:
    question = asked(hold)
    Question.objects.update(expires_at=timezone.now() - questions.LAPSE_AFTER * 2)
    assert questions.expire_due() == 0
    Worker.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    assert questions.expire_due() == 1
    writer().submit_and_wait(lambda: None)
    assert again(question).state == "expired"


def test_a_question_outlives_its_server(hold: Hold, order: Order, grace: Any) -> None:
    question = asked(hold, order)
    question.server.delete()
    kept = again(question)
    assert (kept.server_id, kept.server_name, kept.state) == (None, "Files", "open")
    write(lambda: questions.withdraw(kept.uid, "Gone."))
    assert again(kept).state == "withdrawn"


def test_an_erased_answer_is_not_handed_over_as_an_empty_one(hold: Hold, grace: Any) -> None:
    question = again(asked(hold))
    assert inbox.answer(Actor.of_user(grace), grace, question, "accept", Given(value={"city": "Paris"}))
    payloads.erase(again(question).answer)
    assert inbox_read.settled([question.uid])[0].content is None

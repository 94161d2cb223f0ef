"""Extending a question: it gets the same time again, never past the end of its call, and only once if two people
click at once."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from servers import access
from servers.audit.record import Actor
from servers.audit.writer import writer
from servers.enums import AuditAction
from servers.models import AuditEvent, Server
from sessions.calls.claims import PendingCall
from sessions.connections.lifecycle import Lease
from sessions.inbox import answering, more_time, questions
from sessions.models import Call, Question
from tests.sessions.inbox.test_answering import again, asked, lease, pending, person, write  # noqa: F401 -- fixtures

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
TEN_MINUTES = timedelta(seconds=600)


@pytest.fixture
def ada() -> Any:
    return person("ada", "answer_question")


def extended(user: Any, question: Question) -> Any:
    return answering.extend(Actor.of_user(user), user, question)


def test_it_waits_as_long_again_and_belongs_to_the_user_who_asked_for_it(lease: Lease, ada: Any) -> None:  # noqa: F811  a fixture by its name
    question = again(asked(lease))
    assert extended(ada, question) == question.expires_at + TEN_MINUTES
    now = again(question)
    assert (now.expires_at, now.owner_name) == (question.expires_at + TEN_MINUTES, "ada")
    assert now.version == question.version + 1
    event = AuditEvent.objects.filter(action=AuditAction.QUESTION_TAKE).get()
    assert now.expires_at.isoformat() in event.body
    assert event.actor_name == "ada"


def test_two_who_press_at_once_add_the_time_once(lease: Lease, ada: Any) -> None:  # noqa: F811  a fixture by its name
    seen_by_both = again(asked(lease))
    assert extended(ada, seen_by_both)
    assert extended(person("grace", "answer_question"), seen_by_both) is None
    assert again(seen_by_both).expires_at == seen_by_both.expires_at + TEN_MINUTES


def test_the_end_of_its_call_is_the_end_of_its_time(lease: Lease, pending: PendingCall, ada: Any) -> None:  # noqa: F811  a fixture by its name
    question = asked(lease, pending)
    Server.objects.update(total_timeout_seconds=700)
    sent_at = Call.objects.get(pk=pending.pk).sent_at
    assert sent_at is not None
    last = sent_at + timedelta(seconds=700) - questions.MARGIN
    assert extended(ada, again(question)) == last
    assert extended(ada, again(question)) is None


def test_a_question_without_a_call_gets_more_time_ten_times(lease: Lease, ada: Any) -> None:  # noqa: F811  a fixture by its name
    question = asked(lease)
    Server.objects.update(total_timeout_seconds=10**6)
    given = sum(extended(ada, again(question)) is not None for _ in range(more_time.TIMES + 3))
    assert given == more_time.TIMES


def test_what_is_over_or_past_its_time_gets_no_more(lease: Lease, ada: Any) -> None:  # noqa: F811  a fixture by its name
    late, ended = asked(lease), asked(lease)
    Question.objects.filter(pk=late.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    write(lambda: questions.withdraw(ended.uid, "Gone."))
    assert [extended(ada, again(one)) for one in (late, ended)] == [None, None]
    assert not AuditEvent.objects.filter(action=AuditAction.QUESTION_TAKE).exists()


def test_without_permission_to_answer_no_one_gives_time(lease: Lease) -> None:  # noqa: F811  a fixture by its name
    question = again(asked(lease))
    with pytest.raises(access.Denied):
        extended(person("eve"), question)
    assert again(question).expires_at == question.expires_at


def test_the_host_learns_that_there_is_more_time_when_it_wants_to_end_it(lease: Lease, ada: Any) -> None:  # noqa: F811  a fixture by its name
    question = again(asked(lease))
    until = extended(ada, question)
    assert write_expire(question) == until
    assert again(question).state == "open"


def write_expire(question: Question) -> Any:
    return writer().submit_and_wait(lambda: questions.expire(question.uid), lambda told: told[1])[0]

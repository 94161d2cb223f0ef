"""The overview shows the number of open questions to people who may answer them."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from sessions.enums import CallState, QuestionKind
from sessions.models import Approval
from tests.sessions.inbox.rows import a_call, a_question, a_server
from tests.sessions.inbox.test_inbox_pages import ada, admin, signed_in, text  # noqa: F401 -- fixtures

pytestmark = pytest.mark.django_db(transaction=True)


def test_whoever_may_answer_is_led_to_the_inbox_from_the_overview(ada: Client) -> None:  # noqa: F811  a fixture by its name
    a_question({"message": "One?"}, QuestionKind.FORM)
    page = text(ada.get("/"))
    assert "1 request in the inbox" in page
    assert 'data-waiting="1"' in page
    assert "in the inbox</a>" not in text(signed_in("vera", "view_server").get("/"))


def test_a_call_that_waits_for_approval_needs_attention_as_well(ada: Client) -> None:  # noqa: F811  a fixture by its name
    a_held_call()
    page = text(ada.get("/"))
    assert "1 request in the inbox" in page
    assert "Waiting for a person to answer or approve." in page
    a_question({"message": "One?"}, QuestionKind.FORM)
    assert 'data-waiting="2"' in text(ada.get("/"))


def a_held_call() -> None:
    call, now = a_call(a_server(), state=CallState.HELD, sent_at=None, open_questions=0), timezone.now()
    times = {"created_at": now, "expires_at": now + timedelta(minutes=5)}
    Approval.objects.create(call=call, same="0", why="It is destructive.", **times)


def test_an_empty_inbox_is_not_mentioned(ada: Client) -> None:  # noqa: F811  a fixture by its name
    assert "in the inbox</a>" not in text(ada.get("/"))

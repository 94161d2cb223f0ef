"""The overview shows the number of open questions to people who may answer them."""

import pytest
from django.test import Client

from sessions.enums import QuestionKind
from tests.sessions.inbox.rows import a_question
from tests.sessions.inbox.test_inbox_pages import ada, admin, signed_in, text  # noqa: F401 -- fixtures

pytestmark = pytest.mark.django_db(transaction=True)


def test_whoever_may_answer_is_led_to_the_inbox_from_the_overview(ada: Client) -> None:  # noqa: F811  a fixture by its name
    a_question({"message": "One?"}, QuestionKind.FORM)
    page = text(ada.get("/"))
    assert "1 request in the inbox" in page
    assert 'data-waiting="1"' in page
    assert "in the inbox</a>" not in text(signed_in("vera", "view_server").get("/"))


def test_an_empty_inbox_is_not_mentioned(ada: Client) -> None:  # noqa: F811  a fixture by its name
    assert "in the inbox</a>" not in text(ada.get("/"))

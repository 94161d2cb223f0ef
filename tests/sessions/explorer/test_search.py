"""The explorer's search on rows of the tables."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction

from servers.audit.record import SYSTEM, Event, record
from servers.enums import AuditAction, AuditOutcome
from sessions.explorer import language, search
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> Any:
    return get_user_model().objects.create_superuser("admin", password="x")


def query(text: str = "") -> language.Query:
    return language.parse(text, datetime.now(UTC))


def event(action: AuditAction, subject: str = "") -> int:
    with transaction.atomic():
        return record(Event(action, AuditOutcome.OK, SYSTEM, subject=subject))


def test_pages_of_calls_and_events_follow_each_other_without_gap_or_repeat(admin: Any) -> None:
    session = make_session()
    for number in range(7):
        make_call(session, f"tool{number}")
        event(AuditAction.SIGN_IN, f"person{number}")
        event(AuditAction.CALL_REQUEST, f"tool{number}")
    seen, cursor = [], ""
    while True:
        page = search.page(admin, query(), cursor, limit=4)
        seen += [row.target for row in page.rows]
        cursor = page.older
        if not cursor:
            break
    expected = [name for number in reversed(range(7)) for name in (f"person{number}", f"tool{number}")]
    assert seen == [*expected, "admin"]  # the account's own event
    back = search.page(admin, query(), page.newer, limit=4)
    assert [row.target for row in back.rows] == seen[-len(page.rows) - 4 : -len(page.rows)]


def test_rows_that_came_since_a_page_are_counted(admin: Any) -> None:
    session = make_session()
    make_call(session)
    newest = search.page(admin, query()).newest
    assert search.newer_count(admin, query(), newest) == 0
    make_call(session)
    event(AuditAction.SIGN_IN)
    assert search.newer_count(admin, query(), newest) == 2


def test_conditions_choose_the_rows(admin: Any) -> None:
    session = make_session()
    make_call(session, "create_issue")
    make_call(session, "list_issues")
    event(AuditAction.SIGN_IN, "ann")

    def found(text: str) -> list[str]:
        return [row.target for row in search.page(admin, query(text)).rows]

    assert found("tool:create_*") == ["create_issue"]
    assert found("in:calls -tool:create_*") == ["list_issues"]
    assert found("kind:sign-in") == ["ann"]
    assert found("server:files outcome:running") == ["list_issues", "create_issue"]
    assert found("server:other") == []

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext

from servers.audit import query
from servers.audit.query import Filters
from servers.audit.record import SYSTEM, Actor, Event, ServerRef, record, record_many
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent

pytestmark = pytest.mark.django_db
ADA, BOB = Actor(1, "ada", "192.0.2.1"), Actor(2, "bob", "192.0.2.2")
ORDERS = ServerRef(uuid4(), "orders")


def event(action: AuditAction = AuditAction.CALL_SEND, actor: Actor = ADA, **fields: Any) -> Event:
    return Event(action, fields.pop("outcome", AuditOutcome.OK), actor, **fields)


def found(text: str) -> list[int]:
    filters = Filters.read(QueryDict(text))
    return [one.seq for one in query.page(filters.apply(AuditEvent.objects.all())).events]


@pytest.fixture
def five() -> Any:
    call = uuid4()
    record_many(
        [
            event(AuditAction.SIGN_IN, subject="ada"),
            event(AuditAction.SERVER_REGISTER, server=ORDERS, subject="orders"),
            event(AuditAction.CALL_REQUEST, BOB, server=ORDERS, subject="refund", call_uid=call),
            event(
                AuditAction.CALL_FINISH,
                BOB,
                server=ORDERS,
                subject="refund",
                call_uid=call,
                outcome=AuditOutcome.FAILED,
            ),
            event(AuditAction.SESSION_OPEN, SYSTEM, server=ServerRef(uuid4(), "files")),
        ]
    )
    return call


def test_each_filter_finds_its_events_newest_first(five: Any) -> None:
    assert found("") == [5, 4, 3, 2, 1]
    assert found("kind=calls") == [4, 3]
    assert found("kind=servers") == [2]
    assert found("kind=sessions") == [5]
    assert found("kind=sign-in") == [1]
    assert found("kind=call:tool:finish") == [4]
    assert found(f"server={ORDERS.uid}") == [4, 3, 2]
    assert found("server=files") == [5]
    assert found("user=bob&outcome=failed") == [4]
    assert found("text=REFUND") == [4, 3]
    assert found("text=192.0.2.2") == [4, 3]
    assert found(f"text={five}") == [4, 3]
    assert found("text=%232") == [2]
    assert found("text=nothing") == []


@pytest.mark.usefixtures("tamperable")
def test_a_time_without_a_zone_is_utc_and_both_ends_are_included(five: Any) -> None:
    at = AuditEvent.objects.get(seq=3).at
    AuditEvent.objects.filter(seq__gt=3).update(at=at + timedelta(hours=1))
    AuditEvent.objects.filter(seq__lt=3).update(at=at - timedelta(hours=1))
    text = at.strftime("%Y-%m-%dT%H:%M:%S.%f")
    assert found(f"since={text}") == [5, 4, 3]
    assert found(f"until={text}") == [3, 2, 1]


def test_every_action_belongs_to_one_group() -> None:
    grouped = [action for name in query.GROUPS for action in query.actions_of(name)]
    assert sorted(grouped) == sorted(AuditAction)


def test_pages_by_key_meet_without_overlap_in_both_directions() -> None:
    record_many([event() for _ in range(120)])
    events = AuditEvent.objects.all()
    first = query.page(events)
    assert ([first.events[0].seq, first.events[-1].seq], first.newer, first.older) == ([120, 71], None, 71)
    second = query.page(events, before=first.older)
    assert ([second.events[0].seq, second.events[-1].seq], second.newer, second.older) == ([70, 21], 70, 21)
    third = query.page(events, before=second.older)
    assert ([third.events[0].seq, third.events[-1].seq], third.newer, third.older) == ([20, 1], 20, None)
    back = query.page(events, after=third.newer)
    assert ([back.events[0].seq, back.events[-1].seq], back.newer, back.older) == ([70, 21], 70, 21)
    top = query.page(events, after=back.newer)
    assert ([top.events[0].seq, top.events[-1].seq], top.newer) == ([120, 71], None)
    assert query.page(events, after=120).events == []


def test_a_page_costs_the_same_few_queries_however_long_the_log() -> None:
    for count in (3, 60):
        record_many([event() for _ in range(count)])
        with CaptureQueriesContext(connection) as seen:
            query.page(AuditEvent.objects.all())
        assert len(seen) == 1
        assert "OFFSET" not in seen[0]["sql"]
        assert "COUNT" not in seen[0]["sql"]


def test_catching_up_misses_nothing_and_is_bounded(five: Any) -> None:
    assert [one.seq for one in query.rows_after(2)] == [3, 4, 5]
    assert [one.seq for one in query.rows_after(0, limit=2)] == [1, 2]
    assert query.head_seq() == 5


def test_the_exchange_of_a_call_is_all_its_events_in_order(five: Any) -> None:
    assert [one.seq for one in query.exchange(AuditEvent.objects.get(seq=4))] == [3, 4]
    assert [one.seq for one in query.exchange(AuditEvent.objects.get(seq=2))] == [2]


def test_a_live_row_holds_words_and_no_details() -> None:
    record(
        event(AuditAction.CALL_FINISH, subject="refund", server=ORDERS, outcome=AuditOutcome.UNKNOWN, details={"x": 1})
    )
    row = query.event_row(AuditEvent.objects.get())
    assert (row["word"], row["outcome_word"], row["tone"]) == ("Call finished", "Outcome unknown", "warn")
    assert (row["url"], row["server_name"], row["user"]) == ("/audit/1/", "orders", "ada")
    assert "details" not in row


def test_a_group_of_kinds_is_paged_by_the_index_of_each_kind() -> None:
    kinds = (AuditAction.SESSION_OPEN, AuditAction.CALL_SEND, AuditAction.SESSION_READY, AuditAction.SESSION_LOST)
    record_many([event(kinds[n % 4], outcome=AuditOutcome.OK) for n in range(240)])
    events, filters = AuditEvent.objects.all(), Filters(kind="sessions")
    everything = list(filters.apply(events).order_by("-seq").values_list("seq", flat=True))
    first = query.page(events, filters)
    second = query.page(events, filters, before=first.older)
    assert [one.seq for one in first.events + second.events] == everything[:100]
    assert query.page(events, filters, after=second.newer).events == first.events
    both = Filters(kind="sessions", outcome="ok", user="bob")
    assert query.page(events, both).events == []
    with CaptureQueriesContext(connection) as seen:
        query.page(events, filters)
    assert len(seen) == 2
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {seen[0]['sql']}")
            plan = [row[3] for row in cursor.fetchall()]
        assert all("audit_by_action" in step for step in plan if "servers_auditevent" in step)
        assert not any("TEMP B-TREE" in step for step in plan)


def test_the_events_of_a_call_come_in_order_from_its_index() -> None:
    uid = uuid4()
    record_many([event(call_uid=uid) for _ in range(3)])
    if connection.vendor == "sqlite":
        plan = AuditEvent.objects.filter(call_uid=uid).order_by("seq").explain()
        assert "audit_by_call" in plan
        assert "TEMP B-TREE" not in plan

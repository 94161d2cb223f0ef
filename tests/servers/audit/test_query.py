from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from servers.audit import query
from servers.audit.record import SYSTEM, Actor, Event, ServerRef, record, record_many
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent

pytestmark = pytest.mark.django_db
ADA, BOB = Actor(1, "ada", "192.0.2.1"), Actor(2, "bob", "192.0.2.2")
ORDERS = ServerRef(uuid4(), "orders")


def event(action: AuditAction = AuditAction.CALL_SEND, actor: Actor = ADA, **fields: Any) -> Event:
    return Event(action, fields.pop("outcome", AuditOutcome.OK), actor, **fields)


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


def test_every_action_belongs_to_one_group() -> None:
    grouped = [action for name in query.GROUPS for action in query.actions_of(name)]
    assert sorted(grouped) == sorted(AuditAction)


def test_catching_up_misses_nothing_and_is_bounded(five: Any) -> None:
    assert [one.seq for one in query.rows_after(2, limit=9)] == [3, 4, 5]
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


def test_the_events_of_a_call_come_in_order_from_its_index() -> None:
    uid = uuid4()
    record_many([event(call_uid=uid) for _ in range(3)])
    if connection.vendor == "sqlite":
        plan = AuditEvent.objects.filter(call_uid=uid).order_by("seq").explain()
        assert "audit_by_call" in plan
        assert "TEMP B-TREE" not in plan

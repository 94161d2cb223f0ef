"""Statements that ask a driver directly fail, convert and count as those of Django do."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.test.utils import CaptureQueriesContext

from servers.models import AuditHead, Server
from servers.sql import Fields, Insert, execute, execute_many, fetch
from sessions.enums import WireDirection, WireKind
from sessions.models import Attempt, Call, WireMessage

_HEADS = AuditHead._meta.db_table
INSERT = f"INSERT INTO {_HEADS} (chain, seq, hash) VALUES (%s, %s, %s)"  # noqa: S608  # a name of our own
SELECT = f"SELECT chain, seq, hash FROM {_HEADS} WHERE hash LIKE 'x%%' AND seq > %s ORDER BY chain"  # noqa: S608  # the same
UPDATE = f"UPDATE {_HEADS} SET seq = %s WHERE chain > %s"  # noqa: S608  # the same


@pytest.mark.django_db
@pytest.mark.parametrize("recorded", [False, True])
def test_rows_are_written_changed_and_read_whether_or_not_statements_are_recorded(recorded: bool) -> None:
    connection.force_debug_cursor = recorded
    try:
        execute_many(INSERT, [(901, 1, "x1"), (902, 2, "x2"), (903, 3, "y")])
        assert execute(UPDATE, [7, 901]) == 2
        assert [tuple(row) for row in fetch(SELECT, [1])] == [(902, 7, "x2")]
    finally:
        connection.force_debug_cursor = False


@pytest.mark.django_db
@pytest.mark.parametrize("recorded", [False, True])
def test_a_percent_sign_before_an_s_is_text(recorded: bool) -> None:
    connection.force_debug_cursor = recorded
    try:
        assert fetch("SELECT '100%%s', %s", [1]) == [("100%s", 1)]
    finally:
        connection.force_debug_cursor = False


@pytest.mark.django_db
def test_a_recording_of_statements_has_them_all() -> None:
    with CaptureQueriesContext(connection) as seen:
        execute(INSERT, [901, 1, "x"])
        fetch(SELECT, [0])
        execute_many(INSERT, [(902, 1, "x")])
    assert len(seen) == 3


@pytest.mark.django_db
def test_a_wrapper_of_statements_may_refuse_them() -> None:
    def refuse(*_arguments: Any) -> None:
        raise DatabaseError("refused")

    with connection.execute_wrapper(refuse), pytest.raises(DatabaseError, match="refused"):
        fetch(SELECT, [0])


@pytest.mark.django_db
def test_a_refused_row_raises_the_error_of_django_and_ends_the_transaction() -> None:
    execute(INSERT, [901, 1, "x"])
    for again in (lambda: execute(INSERT, [901, 2, "y"]), lambda: execute_many(INSERT, [(901, 2, "y")])):
        with pytest.raises(IntegrityError), transaction.atomic():
            again()
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            fetch(SELECT, [0])
        transaction.set_rollback(False)


@pytest.mark.django_db(transaction=True)
def test_a_thread_without_a_connection_opens_one() -> None:
    connection.close()
    assert fetch("SELECT 1") == [(1,)]


@pytest.mark.django_db
@pytest.mark.parametrize("model", [Call, Attempt, Server])
def test_a_value_is_written_as_its_field_writes_it(model: type[models.Model]) -> None:
    set_by_us = [field for field in model._meta.concrete_fields if field is not model._meta.pk]
    fields = [
        field for field in set_by_us if not (getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False))
    ]
    row = model()
    for field in fields:
        kept = getattr(row, field.attname)
        if isinstance(field, models.DateTimeField):
            kept = datetime(2026, 7, 1, 12, 30, 1, 5, tzinfo=UTC)
        elif isinstance(field, models.UUIDField):
            kept = UUID(int=7)
        elif field.remote_field is not None:
            kept = 3
        setattr(row, field.attname, kept)
    expected = [field.get_db_prep_save(field.pre_save(row, True), connection) for field in fields]
    assert Fields(fields).of_row(row) == expected
    empty = {field.attname: None for field in fields}
    assert Fields(fields).of_columns(empty) == [field.get_db_prep_save(None, connection) for field in fields]


def test_a_field_that_sets_the_time_itself_does_so() -> None:
    times = [field for field in Server._meta.concrete_fields if getattr(field, "auto_now_add", False)]
    assert times
    assert None not in Fields(times).of_row(Server())


def _many_rows_hold_what_one_would() -> None:
    server = Server.objects.create(slug="copied", name="Copied", transport="stdio", command="/bin/true")
    texts = ["", "\\N", "\\.", 'tab\there, "quoted"\nand a line\r\n', "\\x41 ä 😀", "a,b;c|d"]
    messages = [
        WireMessage(
            server=server,
            seq=number,
            position=number,
            connection=1,
            at=datetime(2026, 7, 1, 12, 30, 1, 5, tzinfo=UTC),
            direction=WireDirection.SENT,
            kind=WireKind.REQUEST,
            body=text,
            sealed=None if number % 2 else text.encode() + b"\x00\xff\\",
            call_uid=UUID(int=number) if number % 2 else None,
            duration_ms=None if number % 2 else 0.1,
            cut=bool(number % 2),
        )
        for number, text in enumerate(texts)
    ]
    insert = Insert(WireMessage)
    insert.many([insert.values(message) for message in messages])
    found = WireMessage.objects.filter(server=server).order_by("seq")
    names = insert.names
    assert [[_plain(getattr(row, name)) for name in names] for row in found] == [
        [_plain(getattr(row, name)) for name in names] for row in messages
    ]
    with pytest.raises(IntegrityError), transaction.atomic():
        insert.many([insert.values(WireMessage(server=server, seq=9, position=9, at=messages[0].at))])
    assert found.count() == len(texts)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.django_db
def test_many_rows_hold_what_one_would() -> None:
    _many_rows_hold_what_one_would()


@pytest.mark.usefixtures("on_postgres")
def test_many_rows_hold_what_one_would_on_postgresql(django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        _many_rows_hold_what_one_would()

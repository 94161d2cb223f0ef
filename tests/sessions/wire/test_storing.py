"""The recorded wire is numbered without gaps by its owner only, and its oldest part goes by size and age."""

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.audit import writer as writing
from servers.enums import IdentityKind, SignsInAs
from servers.models import Identity
from sessions.connections import commands
from sessions.connections.lifecycle import Lease
from sessions.enums import Desired, StoredKind, WireDirection, WireKind
from sessions.host.wire.log import ROW_BYTES, WireEntry, WireLog
from sessions.host.wire.store import append_all
from sessions.host.wire.writer import WireWriter
from sessions.models import McpSession, RetentionLimit, WireMessage
from sessions.retention import job
from sessions.wire import retention
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_hold, make_session, make_worker
from tests.sessions.wire.rows import add_message

KIB = 1024
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], autouse=True)
def _database(request: pytest.FixtureRequest) -> None:
    if request.param == "postgresql":
        request.getfixturevalue("on_postgres")


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    """The writer keeps the connection of the test that started it."""
    yield
    writing.reset()


class Idle(WireWriter):
    def wake(self, source: Any) -> None:
        pass


def log_of(lease: Lease) -> WireLog:
    return WireLog(Idle(None), lease)  # type: ignore[arg-type]  # the test writes itself


def say(log: WireLog, count: int, size: int = 0, **fields: Any) -> None:
    for number in range(count):
        entry = WireEntry(WireDirection.SENT, WireKind.NOTIFICATION, method=f"m{number}", body="x" * size, **fields)
        log.add(entry)


def write(*logs: WireLog) -> None:
    """As the writer does."""
    batches = [(log, log.take()) for log in logs]
    with transaction.atomic():
        append_all(batches)
    logs[0]._writer.written(batches)


def numbers(**of: Any) -> list[int]:
    return list(WireMessage.objects.filter(**of).order_by("seq").values_list("seq", flat=True))


def test_each_session_numbers_its_own_and_continues_after_a_handover() -> None:
    one, other = make_session("one"), make_session("other")
    first, second = log_of(make_hold(one)), log_of(make_hold(other))
    say(first, 3)
    say(second, 2)
    write(first, second)
    say(first, 2)
    write(first)
    next_owner = WireLog(first._writer, make_hold_again(one))
    say(next_owner, 1)
    write(next_owner)
    assert (numbers(server=one.server), numbers(server=other.server)) == ([1, 2, 3, 4, 5, 6], [1, 2])
    row = WireMessage.objects.get(server=one.server, seq=6)
    assert row.position == 6 * ROW_BYTES


def make_hold_again(session: McpSession) -> Lease:
    McpSession.objects.filter(pk=session.pk).update(owner=None)
    return make_hold(session, make_worker())


@pytest.mark.parametrize("committed", [True, False])
def test_messages_that_were_put_back_are_written_once_whether_they_had_been_committed_or_not(committed: bool) -> None:
    log = log_of(make_hold(make_session()))
    say(log, 2)
    write(log)
    say(log, 3, size=10)
    batch = log.take()
    with transaction.atomic():
        append_all([(log, batch)])
        transaction.set_rollback(not committed)
    log.put_back(batch)
    say(log, 1)
    write(log)
    rows = list(WireMessage.objects.order_by("seq").values_list("seq", "position", "method"))
    assert [(seq, method) for seq, _, method in rows] == [
        (1, "m0"), (2, "m1"), (3, "m0"), (4, "m1"), (5, "m2"), (6, "m0"),
    ]  # fmt: skip
    sizes = [ROW_BYTES] * 2 + [ROW_BYTES + 10] * 3 + [ROW_BYTES]
    assert [position for _, position, _ in rows] == [sum(sizes[: count + 1]) for count in range(6)]


def test_who_lost_the_session_writes_nothing() -> None:
    session = make_session()
    old = log_of(make_hold(session))
    make_hold_again(session)
    say(old, 3)
    write(old)
    assert numbers() == []


def test_a_personal_session_has_a_log_of_its_own() -> None:
    session = make_session(signs_in_as=SignsInAs.EITHER)
    own = Identity.objects.create(server=session.server, user=person("ada"), kind=IdentityKind.PERSONAL, name="ada")
    of_ada = commands.session_of(own, session.server)
    McpSession.objects.filter(pk=of_ada.pk).update(desired=Desired.OPEN)
    shared, personal = log_of(make_hold(session)), log_of(make_hold(of_ada))
    say(shared, 2)
    say(personal, 3)
    write(shared, personal)
    assert (numbers(identity=None), numbers(identity=own)) == ([1, 2], [1, 2, 3])


@pytest.mark.parametrize("to_seal", [False, True])
def test_every_kind_of_value_comes_back_as_it_was(to_seal: bool) -> None:
    session = make_session()
    log, call = log_of(make_hold(session)), make_call(session)
    entry = WireEntry(
        WireDirection.RECEIVED,
        WireKind.ERROR,
        connection=1_790_000_000_000_000,
        transport="stdio",
        exchange=7,
        method="tools/call",
        target="größe",
        rpc_id='"a"',
        call_uid=call.uid,
        status=404,
        fault="-32000",
        detail="no",
        duration_ms=1.25,
        size=5_000_000_000,
        headers="{}",
        body='{"ü": "\\u0000"}',
        cut=True,
        to_seal=to_seal,
    )
    log.add(entry)
    write(log)
    row = WireMessage.objects.get()
    assert (row.sealed is not None) == to_seal
    names = [name for name in WireEntry.__slots__ if name not in ("taken", "counted", "to_seal")]
    assert {name: getattr(row, name) for name in names} == {name: getattr(entry, name) for name in names}


def test_a_batch_of_many_sessions_takes_as_few_statements_as_one_of_one() -> None:
    logs = [log_of(make_hold(make_session(f"s{number}"))) for number in range(5)]
    for log in logs:
        say(log, 1)
    write(*logs)
    counts = []
    for some in (logs[:1], logs):
        for log in some:
            say(log, 20)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            write(*some)
        counts.append(len(queries))
    assert counts[0] == counts[1]


# --- bounds ---------------------------------------------------------------------------------------------------------------
def test_the_log_of_a_session_never_grows_far_beyond_its_size(settings: Any) -> None:
    settings.WIRE_MIB = 0.25
    session = make_session()
    log = log_of(make_hold(session))
    for _ in range(30):
        say(log, 20, KIB - ROW_BYTES)
        write(log)
    kept = numbers()
    assert kept == list(range(600 - len(kept) + 1, 601))
    assert 256 - 20 <= len(kept) <= 256 + 20 + 4


def test_large_messages_push_out_many_small_ones_a_bounded_number_at_a_time(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WIRE_MIB = 0.25
    monkeypatch.setattr(retention, "BATCH", 50)
    session = make_session()
    log = log_of(make_hold(session))
    say(log, 400)
    write(log)
    counts = [len(numbers())]
    for _ in range(6):
        say(log, 1, 64 * KIB)
        write(log)
        counts.append(len(numbers()))
    removed = [before + 1 - after for before, after in pairwise(counts)]
    assert max(removed) == 50
    assert retention.trim_all() > 0
    assert sum(WireMessage.objects.values_list("size", flat=True)) == 0
    newest, oldest = WireMessage.objects.latest("seq"), WireMessage.objects.earliest("seq")
    assert newest.position - oldest.position < 256 * KIB


def test_all_sessions_of_a_server_share_its_size_and_the_oldest_messages_go_first(settings: Any) -> None:
    settings.WIRE_MIB = 0.25
    session, other = make_session("one", signs_in_as=SignsInAs.EITHER), make_session("other")
    own = Identity.objects.create(server=session.server, user=person("ada"), kind=IdentityKind.PERSONAL, name="ada")
    of_ada = commands.session_of(own, session.server)
    McpSession.objects.filter(pk=of_ada.pk).update(desired=Desired.OPEN)
    shared, personal, apart = log_of(make_hold(session)), log_of(make_hold(of_ada)), log_of(make_hold(other))
    say(apart, 200, KIB - ROW_BYTES)
    write(apart)
    for log, count in ((shared, 100), (personal, 100), (shared, 100), (personal, 100)):
        say(log, count, KIB - ROW_BYTES)
        write(log)
    assert numbers(identity=None, server=session.server) == list(range(101, 201)), "its first hundred were the oldest"
    assert numbers(identity=own) == list(range(200 - len(numbers(identity=own)) + 1, 201))
    assert 256 - 4 <= 100 + len(numbers(identity=own)) <= 256 + 4
    assert len(numbers(server=other.server)) == 200, "each server has a size of its own"


def test_a_server_with_many_small_logs_is_held_to_its_size_by_housekeeping(settings: Any) -> None:
    settings.WIRE_MIB = 0.25
    session = make_session("one", signs_in_as=SignsInAs.EITHER)
    for number in range(20):
        user = person(f"user{number}")
        own = Identity.objects.create(server=session.server, user=user, kind=IdentityKind.PERSONAL, name=user.username)
        of_user = commands.session_of(own, session.server)
        McpSession.objects.filter(pk=of_user.pk).update(desired=Desired.OPEN)
        log = log_of(make_hold(of_user))
        say(log, 2, 20 * KIB)
        with transaction.atomic():
            append_all([(log, log.take())])
    settings.WIRE_MIB = 0.2
    assert retention.trim_all() > 0
    assert sum(log.bytes for log in retention.logs()) <= 0.2 * KIB * KIB
    assert len(retention.logs()) == 20, "the newest message of each session stays"


def test_old_messages_go_by_the_limit_of_the_storage_page_and_numbers_continue() -> None:
    RetentionLimit.objects.update_or_create(kind=StoredKind.MESSAGES, defaults={"days": 2})
    log = log_of(make_hold(make_session()))
    say(log, 10)
    write(log)
    WireMessage.objects.filter(seq__lte=7).update(at=timezone.now() - timedelta(days=2, hours=1))
    WireMessage.objects.filter(seq__gt=7).update(at=timezone.now() - timedelta(hours=3))
    assert retention.trim_all() == 0
    assert job.run(lambda *_: None).detail == "Removed protocol messages: 7."
    assert numbers() == [8, 9, 10]
    say(log, 1)
    write(log)
    assert numbers() == [8, 9, 10, 11]


def test_numbers_continue_for_the_next_owner_when_all_messages_were_too_old() -> None:
    RetentionLimit.objects.update_or_create(kind=StoredKind.MESSAGES, defaults={"days": 2})
    session = make_session()
    log = log_of(make_hold(session))
    say(log, 5)
    write(log)
    WireMessage.objects.update(at=timezone.now() - timedelta(days=3))
    assert job.run(lambda *_: None).detail == "Removed protocol messages: 4."
    assert job.run(lambda *_: None).detail == "Measured. Nothing exceeds its limit."
    position = WireMessage.objects.get().position
    next_owner = WireLog(log._writer, make_hold_again(session))
    say(next_owner, 1)
    write(next_owner)
    assert numbers() == [5, 6]
    assert WireMessage.objects.get(seq=6).position > position


@pytest.mark.parametrize(
    ("variable", "chosen", "expected"),
    [(None, None, 7), (None, 3, 3), (0.5, None, 1), (30.0, None, 30), (30.0, 90, 30)],
)
def test_the_upgrade_takes_the_shorter_of_both_limits_over(
    settings: Any, variable: float | None, chosen: int | None, expected: int
) -> None:
    settings.WIRE_DAYS = variable
    RetentionLimit.objects.all().delete()
    if chosen is not None:
        RetentionLimit.objects.create(kind=StoredKind.MESSAGES, days=chosen, bytes=5)
    import_module("sessions.migrations.0018_wire_age").take_over(apps, None)
    assert RetentionLimit.objects.get().days == expected


def test_numbers_continue_when_everything_was_removed() -> None:
    session = make_session()
    log = log_of(make_hold(session))
    say(log, 4)
    write(log)
    WireMessage.objects.all().delete()
    say(log, 1)
    write(log)
    assert numbers() == [5]


def test_a_deleted_server_takes_its_messages_along() -> None:
    session = make_session()
    log = log_of(make_hold(session))
    say(log, 4)
    write(log)
    session.server.delete()
    assert numbers() == []


def test_the_size_of_each_log_is_found_by_its_ends() -> None:
    session = make_session(signs_in_as=SignsInAs.EITHER)
    own = Identity.objects.create(server=session.server, user=person("ada"), kind=IdentityKind.PERSONAL, name="ada")
    commands.session_of(own, session.server)
    add_message(session.server, identity=own, body="")
    log = log_of(make_hold(session))
    say(log, 3, 100)
    write(log)
    WireMessage.objects.filter(identity=None, seq=1).delete()
    found = {size.key.identity_id: (size.rows, size.bytes) for size in retention.logs()}
    assert found == {None: (2, 100 + ROW_BYTES), own.pk: (1, 0)}

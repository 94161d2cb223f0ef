"""Each final call is counted exactly once: late, repaired, after a retention, by several workers at once."""

import threading
from datetime import timedelta

from django.db import connection
from django.utils import timezone

from sessions.enums import CallState
from sessions.models import Call, CallRollup, RollupCursor, UncountedCall
from sessions.models.statistics import RollupBy, RollupLevel
from sessions.statistics import counting
from tests.sessions.host.make import make_session
from tests.sessions.statistics.conftest import make_calls


def counted(by: RollupBy = RollupBy.TOTAL, level: RollupLevel = RollupLevel.HOUR, **where: object) -> int:
    return sum(CallRollup.objects.filter(by=by, level=level, **where).values_list("calls", flat=True))


def test_every_level_and_dimension_counts_each_final_call_once(database: None) -> None:
    session = make_session()
    make_calls(session, 3)
    make_calls(session, 2, target="add", state=CallState.TOOL_ERROR, user_name="bob")
    assert counting.count_all() == 5
    assert counting.count_all() == 0
    for level in RollupLevel:
        assert [counted(by, level) for by in RollupBy] == [5, 5, 5, 5]
    assert counted(RollupBy.TOOL, target="add", state=CallState.TOOL_ERROR, server_uid=session.server.uid) == 2
    assert counted(RollupBy.CALLER, user_name="bob") == 2


def test_more_calls_than_a_batch_are_counted_once(database: None) -> None:
    make_calls(make_session(), 2 * counting.BATCH + 1)
    assert counting.count_all() == counted() == 2 * counting.BATCH + 1


def test_a_call_that_ends_after_the_cursor_passed_it_is_counted_then(database: None) -> None:
    session = make_session()
    late = make_calls(session, 1, state=CallState.SENT)[0]
    make_calls(session, 1)
    counting.count_all()
    assert (counted(), UncountedCall.objects.count()) == (1, 1)
    Call.objects.filter(pk=late.pk).update(state=CallState.FAILED, finished_at=timezone.now())
    assert counting.count_all() == 1
    assert (counted(state=CallState.FAILED), UncountedCall.objects.count()) == (1, 0)


def test_a_call_of_this_moment_waits_for_its_neighbours(database: None) -> None:
    """Another transaction may still commit a call with a smaller id."""
    session = make_session()
    make_calls(session, 1, timezone.now())
    make_calls(session, 1)
    assert counting.count_all() == 0
    Call.objects.update(created_at=timezone.now() - timedelta(minutes=5))
    assert counting.count_all() == counted() == 2


def test_counting_and_repair_go_on_after_the_clock_was_set_back(database: None) -> None:
    session = make_session()
    ahead = timezone.now() + timedelta(days=1)
    make_calls(session, 1, ahead)
    RollupCursor.objects.update_or_create(pk=1, defaults={"repaired_until": int(ahead.timestamp())})
    make_calls(session, 3)
    assert counting.count_all() == counted() == 4
    missed = make_calls(session, 1, timezone.now() - timedelta(hours=5), target="late")[0]
    RollupCursor.objects.update(call_id=missed.pk, repaired_until=int(ahead.timestamp()))
    assert counting.count_all() == 0
    assert counted(RollupBy.TOOL, target="late") == 1


def test_two_workers_at_once_count_no_call_twice(database: None) -> None:
    make_calls(make_session(), 3 * counting.BATCH)

    def work() -> None:
        try:
            counting.count_all()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted() == counted(RollupBy.TOOL) == 3 * counting.BATCH


def test_a_missed_call_is_found_by_the_repair_at_every_level(database: None) -> None:
    at = timezone.now().replace(minute=30) - timedelta(hours=3)
    session = make_session()
    make_calls(session, 2, at)
    make_calls(session, 1, at - timedelta(hours=1))
    counting.count_all()
    cursor = RollupCursor.objects.get()
    missed = make_calls(session, 1, at, target="late")[0]
    RollupCursor.objects.update(call_id=missed.pk, repaired_until=0)
    assert cursor.call_id < missed.pk
    assert counting.count_all() == 0
    for level in RollupLevel:
        assert [counted(by, level) for by in RollupBy] == [4, 4, 4, 4]
    assert counted(RollupBy.TOOL, target="late") == 1


def test_the_repair_counts_a_day_on_which_a_server_was_renamed(database: None) -> None:
    at = timezone.now().replace(hour=12, minute=30) - timedelta(days=1)
    session = make_session()
    make_calls(session, 2, at - timedelta(hours=1))
    make_calls(session, 1, at, server_name="Renamed")
    counting.count_all()
    missed = make_calls(session, 1, at, server_name="Renamed")[0]
    RollupCursor.objects.update(call_id=missed.pk, repaired_until=0)
    assert counting.count_all() == 0
    assert [counted(by, RollupLevel.DAY) for by in RollupBy] == [4, 4, 4, 4]


def test_calls_that_the_retention_deleted_stay_counted(database: None) -> None:
    make_calls(make_session(), 4, timezone.now() - timedelta(hours=5))
    counting.count_all()
    Call.objects.all().delete()
    RollupCursor.objects.update(repaired_until=0)
    counting.count_all()
    assert counted() == counted(level=RollupLevel.DAY) == 4


def test_minutes_are_dropped_after_two_days_and_hours_stay(database: None) -> None:
    session = make_session()
    make_calls(session, 1)
    counting.count_all()
    moved = {"start": int((timezone.now() - timedelta(days=3)).timestamp())}
    CallRollup.objects.filter(level=RollupLevel.MINUTE).update(**moved)
    counting.count_all()
    assert [counted(level=level) for level in RollupLevel] == [0, 1, 1]
    make_calls(session, 1, timezone.now() - timedelta(days=3))
    counting.count_all()
    assert [counted(level=level) for level in RollupLevel] == [0, 2, 2]


def test_every_level_is_dropped_in_the_end(database: None) -> None:
    make_calls(make_session(), 1)
    counting.count_all()
    for level, kept in counting.KEPT.items():
        start = int((timezone.now() - kept - timedelta(hours=1)).timestamp())
        CallRollup.objects.filter(level=level).update(start=start)
    counting.count_all()
    assert not CallRollup.objects.exists()

"""Charts show what the calls say, counted or not, and to each person only what they may see."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.models import Server
from sessions.enums import CallState
from sessions.mcp.core.methods import COMPLETE
from sessions.models import CallRollup, McpSession
from sessions.models.statistics import LATENCY_BOUNDS_MS, RollupBy, RollupLevel
from sessions.statistics import counting, reading
from sessions.statistics.cells import BUCKETS, bucket_of, percentile
from sessions.statistics.figures import Counts, Dimensions, Range
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.statistics.conftest import make_calls

HOUR, DAY = 3_600, 86_400


def last(**length: float) -> Range:
    return Range.of(timezone.now() - timedelta(**length), timezone.now() + timedelta(seconds=1))


def total(user: Any, span: Range, **wanted: Any) -> int:
    step = reading.step_for(span, 60)
    return sum(point.calls for point in reading.series(user, Dimensions(**wanted), span, step).points)


@pytest.fixture
def auditor(database: None) -> Any:
    return person("rhea", "view_server", "view_payload", "view_auditevent")


@pytest.fixture
def session(database: None) -> McpSession:
    return make_session()


def test_counted_and_uncounted_calls_add_up_to_all_calls(auditor: Any, session: McpSession) -> None:
    make_calls(session, 3)
    assert total(auditor, last(hours=1)) == 3
    counting.count_all()
    make_calls(session, 2, timezone.now())
    make_calls(session, 1, state=CallState.SENT)
    assert total(auditor, last(hours=1)) == 6
    counting.count_all()
    assert total(auditor, last(hours=1)) == 6
    assert total(auditor, last(days=30)) == 6


def test_each_bar_holds_the_calls_of_its_time(auditor: Any, session: McpSession) -> None:
    now = timezone.now().replace(minute=30, second=0, microsecond=0)
    for hours in (1, 2, 2, 5):
        make_calls(session, 1, now - timedelta(hours=hours))
    counting.count_all()
    span = Range.of(now - timedelta(hours=6), now)
    found = reading.series(auditor, Dimensions(), span, HOUR)
    starts = [found.start + timedelta(seconds=found.step * place) for place in range(len(found.points))]
    counts = {start.hour: point.calls for start, point in zip(starts, found.points, strict=True) if point.calls}
    assert counts == {(now - timedelta(hours=hours)).hour: count for hours, count in ((1, 1), (2, 2), (5, 1))}


def test_a_range_ends_at_its_minute_although_days_and_hours_are_read(auditor: Any, session: McpSession) -> None:
    now = timezone.now()
    inside, outside = now - timedelta(hours=30), now - timedelta(hours=30, minutes=3)
    make_calls(session, 1, inside)
    make_calls(session, 1, outside)
    make_calls(session, 1, now - timedelta(minutes=3))
    counting.count_all()
    span = Range.of(inside - timedelta(minutes=1), now - timedelta(minutes=5))
    assert total(auditor, span) == 1
    assert [numbers.calls for _, numbers in reading.ranking(auditor, Dimensions(), RollupBy.SERVER, span).rows] == [1]


@pytest.mark.parametrize(("wanted", "count"), [({"tool": "add"}, 2), ({"caller": "bob"}, 2), ({}, 5)])
def test_dimensions_narrow_both_counted_and_uncounted_calls(
    auditor: Any, session: McpSession, wanted: dict[str, Any], count: int
) -> None:
    make_calls(session, 3)
    make_calls(session, 2, target="add", user_name="bob", state=CallState.FAILED)
    assert total(auditor, last(hours=1), **wanted) == count
    counting.count_all()
    assert total(auditor, last(hours=1), **wanted) == count
    assert total(auditor, last(hours=1), server=session.server.uid, states=frozenset({"failed"})) == 2
    assert total(auditor, last(hours=1), server=make_session("other").server.uid) == 0


def test_personal_calls_are_counted_for_their_person_and_those_who_see_all(auditor: Any, session: McpSession) -> None:
    olga, pete = person("olga", "view_server"), person("pete", "view_server")
    make_calls(session, 2, personal=True, user=olga, user_name="olga")
    make_calls(session, 1)
    for _ in range(2):
        assert [total(user, last(hours=1)) for user in (olga, pete, auditor)] == [3, 1, 3]
        ranked = [reading.ranking(user, Dimensions(), RollupBy.CALLER, last(hours=1)).rows for user in (olga, pete)]
        assert [[cell.user_name for cell, _ in rows] for rows in ranked] == [["olga", "ada"], ["ada"]]
        counting.count_all()


def test_the_busiest_tools_come_first_with_errors_and_percentiles(auditor: Any, session: McpSession) -> None:
    make_calls(session, 19, milliseconds=40)
    make_calls(session, 1, milliseconds=4_000, state=CallState.TOOL_ERROR)
    make_calls(session, 1, target="add", milliseconds=None, state=CallState.EXPIRED)
    make_calls(session, 1, target="add", state=CallState.CANCELLED, milliseconds=2)
    counting.count_all()
    (echo, numbers), (add, others) = reading.ranking(auditor, Dimensions(), RollupBy.TOOL, last(hours=1)).rows
    assert (echo.target, numbers.calls, numbers.errors, numbers.bytes) == ("echo", 20, 1, 140)
    assert 30 < (numbers.p50 or 0) <= 50
    assert 3_000 < (numbers.p99 or 0) <= 5_000
    assert (add.target, others.calls, others.errors, sum(others.latency)) == ("add", 2, 1, 1)


def test_only_the_groups_that_are_shown_have_their_latency_read(auditor: Any, session: McpSession) -> None:
    deleted, busy = make_session("deleted"), make_session("busy")
    make_calls(session, 2, milliseconds=40)
    make_calls(busy, 5, milliseconds=4_000)
    make_calls(deleted, 4, milliseconds=400)
    deleted.server.delete()
    counting.count_all()
    Server.objects.filter(pk=busy.server.pk).update(name="Renamed")
    busy.server.refresh_from_db()
    make_calls(busy, 1, milliseconds=4_000)
    counting.count_all()
    make_calls(session, 1, milliseconds=40)  # not counted yet
    for by, names in (
        (RollupBy.SERVER, [busy.server.uid, "Deleted"]),
        (RollupBy.TOOL, [busy.server.uid, "Deleted"]),
        (RollupBy.CALLER, [None]),
    ):
        found = reading.ranking(auditor, Dimensions(), by, last(hours=1), 2).rows
        assert [group.server_uid or group.server_name or None for group, _ in found] == names
        assert [sum(numbers.latency) for _, numbers in found] == [numbers.calls for _, numbers in found]
    third = reading.ranking(auditor, Dimensions(), RollupBy.SERVER, last(hours=1), 3).rows[2]
    assert (third[0].server_uid, third[1].calls, sum(third[1].latency)) == (session.server.uid, 3, 3)


def test_thirty_days_read_no_more_rows_and_queries_with_a_hundred_times_the_calls(
    auditor: Any, session: McpSession
) -> None:
    begin = timezone.now().replace(hour=0, minute=0, second=0) - timedelta(days=3)

    def cost() -> tuple[int, int]:
        counting.count_all()
        with CaptureQueriesContext(connection) as queries:
            total(auditor, last(days=30))
        return len(queries), CallRollup.objects.count()

    make_calls(session, 1, begin)
    cost()  # reads the person's permissions once
    few = cost()
    make_calls(session, 400, begin)
    assert cost() == few
    assert few[0] <= 6


def test_rollups_are_read_again_only_after_a_batch_was_counted(auditor: Any, session: McpSession) -> None:
    make_calls(session, 3)
    counting.count_all()
    span, wanted = last(hours=24), Dimensions(servers=frozenset([session.server.uid]))

    def read() -> tuple[int, int]:
        """Calls, and statements that read roll-ups."""
        with CaptureQueriesContext(connection) as queries:
            found = reading.of_servers(auditor, wanted, span, HOUR).servers[session.server.uid]
        assert sum(step.calls for step in found.steps) == sum(found.total.latency) == found.total.calls
        return found.total.calls, sum(CallRollup._meta.db_table in one["sql"] for one in queries)

    assert read() == (3, 2)
    assert read() == (3, 0)
    make_calls(session, 1)
    assert read() == (4, 0)  # the new one is not counted yet
    counting.count_all()
    assert read() == (4, 2)


@pytest.mark.django_db
def test_sqlite_reads_the_calls_of_all_servers_from_an_index_alone() -> None:
    session, auditor = make_session(), person("rhea", "view_server", "view_payload")
    make_calls(session, 1)
    counting.count_all()
    for read in (
        lambda: reading.server_counts(auditor, Dimensions(without_methods=frozenset({COMPLETE})), last(hours=24)),
        lambda: reading.ranking(auditor, Dimensions(), RollupBy.SERVER, last(hours=24)),
        lambda: reading.server_counts(person("pete", "view_server"), Dimensions(), last(hours=24)),
    ):
        with CaptureQueriesContext(connection) as queries:
            read()
        sql = next(one["sql"] for one in queries if "UNION ALL" in one["sql"])
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            plan = [row[-1] for row in cursor.fetchall() if "SEARCH" in row[-1]]
        assert len(plan) >= 2
        assert all("COVERING INDEX rollups_calls_by_server" in step for step in plan)


def test_calls_that_are_counted_while_a_chart_is_read_are_shown_once(
    auditor: Any, session: McpSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_calls(session, 7)
    tail, times = reading.uncounted, []

    def counted_in_between(*arguments: Any) -> Any:
        if not times:
            counting.count_all()
        times.append(1)
        return tail(*arguments)

    monkeypatch.setattr(reading, "uncounted", counted_in_between)
    assert total(auditor, last(hours=1)) == 7
    assert len(times) == 2


def test_what_the_rollups_do_not_tell_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        _ = Dimensions(tool="echo", caller="ada").by


def test_a_percentile_lies_within_its_bucket() -> None:
    for value in (0.4, 1, 6, 40, 999, 1_000, 4_321):
        latency = [0] * BUCKETS
        latency[bucket_of(value)] = 3
        found = percentile(latency, 0.95)
        bound = LATENCY_BOUNDS_MS[bucket_of(value)]
        assert found is not None
        assert (LATENCY_BOUNDS_MS[bucket_of(value) - 1] if value > 1 else 0) < found <= bound
    assert percentile([0] * BUCKETS, 0.5) is None
    assert bucket_of(10_000_000) == BUCKETS - 1


def test_steps_are_as_fine_as_the_kept_rollups() -> None:
    assert reading.step_for(last(hours=1), 60) == 300 or reading.step_for(last(minutes=59), 60) == 60
    assert reading.step_for(last(hours=24), 100) == 900
    old = Range.of(timezone.now() - timedelta(days=9), timezone.now() - timedelta(days=9) + timedelta(hours=1))
    assert reading.step_for(old, 60) == RollupLevel.HOUR
    assert reading.step_for(Range(0, 400 * 365 * 86_400), 60) == 82 * 30 * 86_400


# --- by server ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("counted", [False, True])
def test_servers_are_ranked_and_the_chosen_ones_drawn_in_their_order(
    auditor: Any, session: McpSession, counted: bool
) -> None:
    other = make_session("other")
    now = timezone.now().replace(minute=30, second=0, microsecond=0)
    make_calls(session, 2, now - timedelta(hours=1))
    make_calls(other, 3, now - timedelta(hours=2), milliseconds=900)
    make_calls(other, 1, now - timedelta(hours=2), state=CallState.FAILED)
    make_calls(other, 4, now - timedelta(hours=9))
    if counted:
        counting.count_all()
    span = Range.of(now - timedelta(hours=5), now)
    seen: dict[Any, tuple[int, int]] = {}

    def choose(counts: dict[Any, Counts]) -> list[Any]:
        seen.update({uid: (one.calls, one.errors) for uid, one in counts.items()})
        return [session.server.uid, other.server.uid]

    found = reading.by_server(auditor, Dimensions(), span, HOUR, choose)
    assert seen == {session.server.uid: (2, 0), other.server.uid: (4, 1)}
    assert reading.server_counts(auditor, Dimensions(), span)[other.server.uid] == Counts(4, 1)
    assert list(found.servers) == [session.server.uid, other.server.uid]
    assert sum(point.calls for point in found.total) == 6
    assert [[point.calls for point in points if point.calls] for points in found.servers.values()] == [[2], [4]]
    assert (reading.total(found.servers[other.server.uid]).p95 or 0) > 700
    wanted = Dimensions(servers=frozenset([other.server.uid]))
    alone = reading.of_servers(auditor, wanted, span, HOUR)
    assert list(alone.servers) == [other.server.uid]
    bars = alone.servers[other.server.uid]
    assert [(step.calls, step.errors) for step in bars.steps if step.calls] == [(4, 1)]
    assert (bars.total.calls, bars.total.errors) == (4, 1)
    assert (bars.total.p95 or 0) > 700


def test_servers_and_a_caller_together_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        _ = Dimensions(servers=frozenset([uuid4()]), caller="ada").by

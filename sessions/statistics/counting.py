"""Counts final calls into roll-ups, each exactly once, a batch per transaction.

The cursor goes through the calls in the order of their ids. A call without a final state is listed when the cursor
passes it, and counted when it has one. On PostgreSQL ids may become visible out of order, so the cursor stays behind
calls that were placed a moment ago; an intent that takes longer than that to commit is refused. A call further in
the future was placed before the clock was set back, and nothing waits for it. Calls that are missed anyway (after a
restored database or a clock jump) are found by comparing each hour with its calls once a day.
"""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from secrets import randbits
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from servers.sql import param
from sessions.enums import CallState
from sessions.models import Call
from sessions.models.statistics import CallRollup, RollupBy, RollupCursor, RollupLevel, UncountedCall
from sessions.statistics.cells import BUCKET_COLUMNS, LEVELS, Cell, CountedCall, Tally, cells_of, read

#: calls in one transaction: each creates at most twelve roll-ups, and no call may wait longer than 50 ms for it
BATCH: Final = 200
#: the audit writer refuses an intent that is not committed within 5 s
SETTLED: Final = timedelta(seconds=10)
#: the chart of a day compares it with the day before, so all minutes of that day must still exist
MINUTES_KEPT: Final = timedelta(hours=49)
HOURS_KEPT: Final = timedelta(days=400)
DAYS_KEPT: Final = timedelta(days=5 * 366)
#: all of them outlive their calls, so that charts can compare months. The Storage page says so
KEPT: Final = {RollupLevel.MINUTE: MINUTES_KEPT, RollupLevel.HOUR: HOURS_KEPT, RollupLevel.DAY: DAYS_KEPT}
REPAIR_EVERY: Final = timedelta(days=1)
FINAL: Final = [state.value for state in CallState if state.final]
_HOUR: Final = int(RollupLevel.HOUR)
_DAY: Final = int(RollupLevel.DAY)
_TABLE: Final = CallRollup._meta.db_table
_KEY: Final = ("cell", "level", "start")
_DIMENSIONS: Final = ("by", "server_uid", "server_name", "target", "user_name", "owner_id", "method", "way", "state")
#: everything in a cell's digest. A server's name is not included, because it may be renamed
_GROUPED: Final = tuple(name for name in _DIMENSIONS if name != "server_name")
_SUMS: Final = ("calls", "bytes", *BUCKET_COLUMNS)
_COLUMNS: Final = (*_KEY, *_DIMENSIONS, *_SUMS)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


_ADD = f"""
INSERT INTO {_TABLE} ({_names(_COLUMNS)}) VALUES ({", ".join(["%s"] * len(_COLUMNS))})
ON CONFLICT ({_names(_KEY)}) DO UPDATE SET {", ".join(f'"{name}" = {_TABLE}."{name}" + excluded."{name}"' for name in _SUMS)}
"""  # noqa: S608  # names of our own model
_DAY_FROM_HOURS = f"""
INSERT INTO {_TABLE} ({_names((*_KEY, *_GROUPED, "server_name", *_SUMS))})
SELECT cell, {_DAY}, %s, {_names(_GROUPED)}, MAX("server_name"), {", ".join(f'SUM("{name}")' for name in _SUMS)}
FROM {_TABLE} WHERE level = {_HOUR} AND start >= %s AND start < %s GROUP BY cell, {_names(_GROUPED)}
"""  # noqa: S608  # the same


def count_all(on_progress: Callable[[int], None] = lambda _done: None) -> int:
    """Count whatever is due, and trim and repair the roll-ups. `on_progress` gets the number of calls so far."""
    done = 0
    for count in (count_late, count_new):
        while counted := count():
            done += counted
            on_progress(done)
    trim(lambda: on_progress(done))
    repair(lambda: on_progress(done))
    return done


def cursor() -> RollupCursor:
    """Its versions start at a random number, so a process never takes one database for another that replaced it."""
    return RollupCursor.objects.get_or_create(pk=1, defaults={"version": randbits(52)})[0]


def count_new() -> int:
    """Count one batch of calls that the cursor has not passed. Returns how many it passed."""
    with transaction.atomic():
        at = _locked_cursor()
        due = Call.objects.filter(pk__gt=at.call_id).order_by("pk")
        now = timezone.now().timestamp()
        calls = list(takewhile(lambda call: abs(now - call.at) > SETTLED.total_seconds(), read(due[:BATCH])))
        if not calls:
            return 0
        _add(call for call in calls if call.final)
        UncountedCall.objects.bulk_create(
            [UncountedCall(call_id=call.pk) for call in calls if not call.final], ignore_conflicts=True
        )
        RollupCursor.objects.filter(pk=at.pk).update(call_id=calls[-1].pk)
    return len(calls)


def count_late() -> int:
    """Count one batch of the calls that were running when the cursor passed them and have ended since."""
    with transaction.atomic():
        _locked_cursor()
        listed = UncountedCall.objects.order_by("pk")
        over = list(
            Call.objects.filter(pk__in=listed.values("call_id"), state__in=FINAL).values_list("pk", flat=True)[:BATCH]
        )
        if not over:
            return 0
        _add(read(Call.objects.filter(pk__in=over)))
        listed.filter(pk__in=over).delete()
    return len(over)


def _locked_cursor() -> RollupCursor:
    """Begins with an UPDATE, so that two workers that count at the same time take turns on both databases."""
    cursor()
    RollupCursor.objects.filter(pk=1).update(version=F("version") + 1)
    return RollupCursor.objects.get(pk=1)


def _add(calls: Iterable[CountedCall]) -> None:
    minutes_from = (timezone.now() - MINUTES_KEPT).timestamp()
    sums: dict[tuple[int, int, Cell], Tally] = {}
    for call in calls:
        for cell in cells_of(call):
            for level in LEVELS:
                if level == RollupLevel.MINUTE and call.at < minutes_from:
                    continue
                key = (int(level), call.at - call.at % level, cell)
                sums.setdefault(key, Tally()).add(call)
    rows = [_values(level, start, cell, total) for (level, start, cell), total in sums.items()]
    if rows:
        with connection.cursor() as sql:
            sql.executemany(_ADD, rows)


def _values(level: int, start: int, cell: Cell, total: Tally) -> list[Any]:
    dimensions = [param(CallRollup, name, getattr(cell, name)) for name in _DIMENSIONS]
    return [cell.digest, level, start, *dimensions, total.calls, total.bytes, *total.latency]


# --- trimming and repair -----------------------------------------------------------------------------------------------
def trim(on_progress: Callable[[], None] = lambda: None) -> None:
    now = time.time()
    for level, kept in KEPT.items():
        for by in RollupBy.values:  # needed for the index
            gone = CallRollup.objects.filter(by=by, level=level, start__lt=int(now - kept.total_seconds()))
            while pks := list(gone.values_list("pk", flat=True)[: 10 * BATCH]):
                CallRollup.objects.filter(pk__in=pks).delete()
                on_progress()
    gone_calls = UncountedCall.objects.exclude(call_id__in=Call.objects.values("pk"))
    UncountedCall.objects.filter(pk__in=list(gone_calls.values_list("pk", flat=True)[:BATCH])).delete()


def repair(on_progress: Callable[[], None] = lambda: None) -> list[datetime]:
    """Compare each hour since the last repair with its calls, at most once a day. Returns the hours counted again."""
    now = timezone.now()
    done = cursor().repaired_until
    if done > now.timestamp():  # the clock was set back
        done = 0
    if done > (now - REPAIR_EVERY).timestamp():
        return []
    end = int((now - timedelta(hours=1)).timestamp()) // _HOUR * _HOUR
    repaired = []
    for start in range(max(done, end - 2 * _DAY), end, _HOUR):
        if _repair_hour(start):
            repaired.append(datetime.fromtimestamp(start, UTC))
        on_progress()
    RollupCursor.objects.filter(pk=1).update(repaired_until=end)
    return repaired


def _repair_hour(start: int) -> bool:
    """Corrects counts only upward: calls that retention has deleted stay counted."""
    if not _missed(start):
        return False
    with transaction.atomic():
        _locked_cursor()
        if not _missed(start):
            return False
        _slot(start).delete()
        _add(read(_counted_calls(start).order_by("pk")))
        day = start - start % _DAY
        CallRollup.objects.filter(by__in=RollupBy.values, level=_DAY, start=day).delete()
        with connection.cursor() as sql:
            sql.execute(_DAY_FROM_HOURS, [day, day, day + _DAY])
    return True


def _missed(start: int) -> bool:
    totals = _slot(start).filter(by=RollupBy.TOTAL, level=_HOUR).aggregate(calls=Sum("calls"))
    return _counted_calls(start).count() > (totals["calls"] or 0)


def _slot(start: int) -> "QuerySet[CallRollup]":
    levels = [int(RollupLevel.MINUTE), _HOUR]
    return CallRollup.objects.filter(
        by__in=RollupBy.values, level__in=levels, start__gte=start, start__lt=start + _HOUR
    )


def _counted_calls(start: int) -> "QuerySet[Call]":
    """Calls of an hour that the cursor has passed and that are not listed."""
    begin, end = (datetime.fromtimestamp(second, UTC) for second in (start, start + _HOUR))
    passed = Call.objects.filter(created_at__gte=begin, created_at__lt=end, pk__lte=cursor().call_id)
    return passed.filter(~Q(pk__in=UncountedCall.objects.values("call_id")), state__in=FINAL)

"""Reads the roll-ups, by time and by dimension. Calls that are not counted yet are added from their own rows.

A range is made of slots that do not overlap: whole days where a step allows it, else hours, and minutes at its ends. So
thirty days cost the same for a thousand calls and for ten million. Minutes are kept for two days: the ends of an older
range are rounded to the hour.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import connection

from servers import access
from servers.sql import param
from sessions.models import Call
from sessions.models.statistics import CallRollup, RollupBy, RollupCursor, UncountedCall
from sessions.statistics.cells import BUCKET_COLUMNS, BUCKETS, CountedCall, read
from sessions.statistics.counting import HOURS_KEPT, MINUTES_KEPT, cursor
from sessions.statistics.figures import (
    NEUTRAL,
    SUCCEEDED,
    Bars,
    Counts,
    Dimensions,
    Group,
    Numbers,
    Range,
    Ranking,
    Series,
    ServerBars,
    ServerSeries,
    ValueCounts,
)

#: calls that one read adds to the roll-ups itself; with more, `Numbers.behind` says so
TAIL: Final = 5_000
#: while old calls are counted for the first time, every read meets a batch
ATTEMPTS: Final = 3
#: answers that a process keeps, of at most some thousand groups each
REMEMBERED: Final = 32
#: lengths of a bar in seconds; each level of roll-ups divides those from its own length on
STEPS: Final = (60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000)
_TABLE: Final = CallRollup._meta.db_table
_HOUR: Final = 3_600
_DAY: Final = 86_400

R = TypeVar("R", "Series", "Ranking", "ServerSeries", "ServerBars", "ValueCounts")


def step_for(span: Range, bars: int) -> int:
    """The shortest step with at most `bars` bars that the kept roll-ups can give."""
    least = finest(span)
    fitting = (step for step in STEPS if step >= least and (span.until - span.since) / step <= bars)
    return next(fitting, STEPS[-1] * math.ceil((span.until - span.since) / STEPS[-1] / bars))


def finest(span: Range) -> int:
    """Length of the shortest roll-ups that are kept since its beginning, in seconds: its ends are rounded to them."""
    age = time.time() - span.since
    if age <= MINUTES_KEPT.total_seconds():
        return 60
    return _HOUR if age <= HOURS_KEPT.total_seconds() else _DAY


def rounding(span: Range, since: datetime | None, until: datetime | None) -> int:
    """To how many seconds the ends of the range are rounded, 0 for less than an hour. An open end is not rounded:
    nothing lies beyond it."""
    least = finest(span)
    ends = [int(end.timestamp()) for end in (since, until) if end is not None]
    return least if least >= _HOUR and any(end % least for end in ends) else 0


def series(user: access.User, wanted: Dimensions, span: Range, step: int, *, latency: bool = True) -> Series:
    """Calls over time. The first and the last step are cut at the ends of the range."""
    return _whole(lambda at: _series(at, user, wanted, span, step, BUCKET_COLUMNS if latency else ()))


def _series(
    at: RollupCursor, user: access.User, wanted: Dimensions, span: Range, step: int, buckets: Sequence[str]
) -> Series:
    start, points = _points(at, user, wanted, span, step, buckets)
    tail, behind = uncounted(at, user, wanted, span)
    for call in tail:
        points[(call.at - start) // step].add(call.state, 1, call.bytes, _latency(call))
    return Series(datetime.fromtimestamp(start, UTC), step, points, behind)


def _points(
    at: RollupCursor,
    user: access.User,
    wanted: Dimensions,
    span: Range,
    step: int,
    buckets: Sequence[str] = BUCKET_COLUMNS,
) -> tuple[int, list[Numbers]]:
    start = span.since - span.since % step
    points = _empty(start, span, step)
    groups, sums = (_slot(start, step), "state"), ("calls", "bytes", *buckets)
    for place, state, calls, size, *latency in _sums(at, user, wanted, wanted.by, span, groups, sums, step):
        points[max(0, min(place, len(points) - 1))].add(state, calls, size, latency)
    return start, points


def _empty(start: int, span: Range, step: int) -> list[Numbers]:
    return [Numbers() for _ in range(max(1, -(-(span.until - start) // step)))]


def _slot(start: int, step: int) -> str:
    return f"(start - {start}) / {step}"


def of_servers(user: access.User, wanted: Dimensions, span: Range, step: int) -> ServerBars:
    """Calls over time for each of `wanted.servers`, with the latency of the whole range: per step it would cost
    most."""
    return _whole(lambda at: _of_servers(at, user, wanted, span, step))


def _of_servers(at: RollupCursor, user: access.User, wanted: Dimensions, span: Range, step: int) -> ServerBars:
    start = span.since - span.since % step
    steps = range(max(1, -(-(span.until - start) // step)))
    found = {uid: Bars(Numbers(), [Counts() for _ in steps]) for uid in wanted.servers}

    def add(uid: UUID, place: int, state: str, calls: int, size: int) -> None:
        found[uid].total.add(state, calls, size, ())
        found[uid].steps[max(0, min(place, len(steps) - 1))].add(calls, 0 if state in SUCCEEDED | NEUTRAL else calls)

    groups = ("server_uid", _slot(start, step), "state")
    for uid, *row in _sums(at, user, wanted, RollupBy.SERVER, span, groups, ("calls", "bytes"), step):
        add(UUID(str(uid)), *row)
    for uid, *latency in _sums(at, user, wanted, RollupBy.SERVER, span, ("server_uid",), BUCKET_COLUMNS):
        found[UUID(str(uid))].total.latency = latency
    tail, behind = uncounted(at, user, wanted, span)
    for call in tail:
        if call.server_uid is not None:
            add(call.server_uid, (call.at - start) // step, call.state, 1, call.bytes)
            found[call.server_uid].total.add(call.state, 0, 0, _latency(call))
    return ServerBars(found, behind)


def by_server(
    user: access.User,
    wanted: Dimensions,
    span: Range,
    step: int,
    choose: Callable[[dict[UUID, Counts]], Collection[UUID]],
) -> ServerSeries:
    """Calls over time for all servers, and for each server that `choose` picks by the counts of all."""
    return _whole(lambda at: _by_server(at, user, wanted, span, step, choose))


def _by_server(
    at: RollupCursor,
    user: access.User,
    wanted: Dimensions,
    span: Range,
    step: int,
    choose: Callable[[dict[UUID, Counts]], Collection[UUID]],
) -> ServerSeries:
    tail, behind = uncounted(at, user, wanted, span)
    counts = _server_counts(at, user, wanted, span, tail)
    start, together = _points(at, user, wanted, span, step)
    for call in tail:
        together[(call.at - start) // step].add(call.state, 1, call.bytes, _latency(call))
    chosen = list(choose(counts))
    points: dict[UUID, list[Numbers]] = {}
    if chosen:
        points = _server_points(at, user, replace(wanted, servers=frozenset(chosen)), span, step)[1]
    _add_to_servers(points, tail, start, step)
    ordered = {uid: points[uid] for uid in chosen}
    return ServerSeries(datetime.fromtimestamp(start, UTC), step, together, ordered, counts, behind)


def server_counts(user: access.User, wanted: Dimensions, span: Range) -> dict[UUID, Counts]:
    """Calls and errors of each server that had calls. Cheaper than a ranking: no latency is summed."""
    at = cursor()
    return _server_counts(at, user, wanted, span, uncounted(at, user, wanted, span)[0])


def _server_counts(
    at: RollupCursor, user: access.User, wanted: Dimensions, span: Range, tail: Iterable[CountedCall]
) -> dict[UUID, Counts]:
    found: dict[UUID, Counts] = {}
    fine = sorted(SUCCEEDED | NEUTRAL)
    rows, given = _rows(user, wanted, RollupBy.SERVER, span, 86_400, "server_uid, state, calls")
    if rows:
        marks = ", ".join(["%s"] * len(fine))
        failed = f"SUM(CASE WHEN state IN ({marks}) THEN 0 ELSE calls END)"
        sql = f"SELECT server_uid, SUM(calls), {failed} FROM ({rows}) part WHERE server_uid IS NOT NULL GROUP BY server_uid"  # noqa: S608  # names of our own model
        counted = _answer(at, RollupBy.SERVER, sql, [*fine, *given])
        found = {UUID(str(uid)): Counts(int(calls), int(errors)) for uid, calls, errors in counted}
    for call in tail:
        if call.server_uid is not None:
            found.setdefault(call.server_uid, Counts()).add(1, int(call.state not in SUCCEEDED | NEUTRAL))
    return found


def _server_points(
    at: RollupCursor, user: access.User, wanted: Dimensions, span: Range, step: int
) -> tuple[int, dict[UUID, list[Numbers]]]:
    start = span.since - span.since % step
    points: dict[UUID, list[Numbers]] = {uid: _empty(start, span, step) for uid in wanted.servers}
    groups, sums = (_slot(start, step), "server_uid", "state"), ("calls", "bytes", *BUCKET_COLUMNS)
    for place, uid, state, calls, size, *latency in _sums(at, user, wanted, RollupBy.SERVER, span, groups, sums, step):
        of_server = points[UUID(str(uid))]
        of_server[max(0, min(place, len(of_server) - 1))].add(state, calls, size, latency)
    return start, points


def _add_to_servers(points: dict[UUID, list[Numbers]], tail: Iterable[CountedCall], start: int, step: int) -> None:
    for call in tail:
        if call.server_uid is not None and call.server_uid in points:
            points[call.server_uid][(call.at - start) // step].add(call.state, 1, call.bytes, _latency(call))


def total(points: Iterable[Numbers]) -> Numbers:
    """All of them together."""
    found = Numbers()
    for point in points:
        found.add_all(point)
    return found


def ranking(user: access.User, wanted: Dimensions, by: RollupBy, span: Range, limit: int = 20) -> Ranking:
    """The groups of `by` with the most calls. With a server only its tools can be ranked, with a caller nothing else."""
    if wanted.by not in (RollupBy.TOTAL, by) and not (wanted.server and by == RollupBy.TOOL):
        raise ValueError(f"roll-ups by {wanted.by} do not tell {by} apart")
    return _whole(lambda at: _ranking(at, user, wanted, by, span, limit))


def _ranking(at: RollupCursor, user: access.User, wanted: Dimensions, by: RollupBy, span: Range, limit: int) -> Ranking:
    """Two reads: all but the calls of a thousand groups, of which twenty are shown, would be most of the work."""
    columns = _TOLD_APART[by]
    names: dict[Key, Sequence[Any]] = {}
    calls: Counter[Key] = Counter()
    tail, behind = uncounted(at, user, wanted, span)
    new = [(call, [param(CallRollup, name, getattr(call, name)) for name in columns]) for call in tail]
    counted = _sums(at, user, wanted, by, span, columns, ("calls",))
    for values, count in chain(((row[:-1], row[-1]) for row in counted), ((values, 1) for _, values in new)):
        key = _key(by, values)
        names.setdefault(key, values)
        calls[key] += count
    ranked = sorted(calls, key=lambda key: (-calls[key], str(names[key])))[:limit]
    found = {key: Numbers() for key in ranked}
    if found:
        only = _only(by, [names[key] for key in ranked])
        groups, sums = (*columns, "state"), ("calls", "bytes", *BUCKET_COLUMNS)
        for row in _sums(at, user, wanted, by, span, groups, sums, only=only):
            state, count, size, *latency = row[len(columns) :]
            if (key := _key(by, row[: len(columns)])) in found:
                found[key].add(state, count, size, latency)
    for call, values in new:
        if (key := _key(by, values)) in found:
            found[key].add(call.state, 1, call.bytes, _latency(call))
    return Ranking([(_group(columns, names[key]), found[key]) for key in ranked], behind)


#: columns that tell the groups of a ranking apart
_TOLD_APART: Final = {
    RollupBy.SERVER: ("server_uid", "server_name"),
    RollupBy.TOOL: ("server_uid", "server_name", "target"),
    RollupBy.CALLER: ("user_name",),
}
Key = tuple[Any, ...]


def _key(by: RollupBy, values: Sequence[Any]) -> Key:
    """A server may have had other names; for one that was deleted before its calls were counted, there is only its
    name."""
    return tuple(values) if by == RollupBy.CALLER else (values[0] or values[1], *values[2:])


def _only(by: RollupBy, groups: Collection[Sequence[Any]]) -> tuple[str, list[Any]]:
    """A condition that these groups meet; others may meet it too."""
    if by == RollupBy.CALLER:
        return _one_of("user_name", [values[0] for values in groups])
    parts = [
        _one_of("server_uid", {values[0] for values in groups if values[0]}),
        _one_of("server_name", {values[1] for values in groups if not values[0]}),
    ]
    some = [part for part in parts if part[1]]
    condition, given = " OR ".join(sql for sql, _ in some), [value for _, values in some for value in values]
    if by == RollupBy.TOOL:
        targets = _one_of("target", {values[2] for values in groups})
        condition, given = f"({condition}) AND {targets[0]}", [*given, *targets[1]]
    return f"({condition})", given


def _one_of(column: str, values: Collection[Any]) -> tuple[str, list[Any]]:
    return f'"{column}" IN ({", ".join(["%s"] * len(values))})', list(values)


def _group(columns: Sequence[str], values: Sequence[Any]) -> Group:
    found = dict(zip(columns, values, strict=True))
    if uid := found.get("server_uid"):
        found["server_uid"] = UUID(str(uid))
    return Group(**found)


def counts(
    user: access.User, wanted: Dimensions, span: Range, groups: Mapping[RollupBy, Sequence[str]], at_most: int
) -> ValueCounts:
    """Numbers of calls by column value. A column with more than `at_most` roll-ups in the range is left out."""
    cheap = {by: columns for by, columns in groups.items() if _rollups(by, span, at_most + 1) <= at_most}
    return _whole(lambda at: _counts(at, user, wanted, span, cheap))


def _counts(
    at: RollupCursor, user: access.User, wanted: Dimensions, span: Range, groups: Mapping[RollupBy, Sequence[str]]
) -> ValueCounts:
    found: dict[RollupBy, Counter[tuple[Any, ...]]] = {}
    tail, behind = uncounted(at, user, wanted, span)
    for by, columns in groups.items():
        counted = Counter({tuple(row[:-1]): row[-1] for row in _sums(at, user, wanted, by, span, columns, ("calls",))})
        counted.update(tuple(getattr(call, name) for name in columns) for call in tail)
        found[by] = counted
    return ValueCounts(found, behind)


def _rollups(by: RollupBy, span: Range, limit: int) -> int:
    """How many there are, counted up to `limit`, from the index alone."""
    part = f"SELECT 1 FROM {_TABLE} WHERE {_of(by)} AND level = %s AND start >= %s AND start < %s"  # noqa: S608  # names of our own model
    segments = _segments(span, _DAY)
    if not segments:
        return 0
    parts = " UNION ALL ".join([part] * len(segments))
    with connection.cursor() as database:
        sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM ({parts}) part LIMIT %s) counted"  # noqa: S608  # the same
        database.execute(sql, [*(value for segment in segments for value in segment), limit])
        return int(database.fetchone()[0])


def _whole(attempt: Callable[[RollupCursor], R]) -> R:
    """Roll-ups and uncounted calls are two reads: between them a batch may have moved calls from one to the other."""
    for _ in range(ATTEMPTS):
        at = cursor()
        found = attempt(at)
        if cursor().version == at.version:
            return found
    return replace(found, behind=True)


# --- SQL ---------------------------------------------------------------------------------------------------------------
def _sums(
    at: RollupCursor,
    user: access.User,
    wanted: Dimensions,
    by: RollupBy,
    span: Range,
    groups: Sequence[str],
    summed: Sequence[str],
    longest: int = _DAY,
    only: tuple[str, Sequence[Any]] = ("", ()),
) -> Iterable[tuple[Any, ...]]:
    """Rows of groups, which are columns or expressions over `start`, and sums, from slots no longer than `longest`. `only`:
    a further condition with its values."""
    # SQLite copies all columns of a part, which has thirty more
    read = ", ".join(f'"{name}"' for name in ("start", *(name for name in groups if " " not in name), *summed))
    rows, given = _rows(user, wanted, by, span, longest, read, only)
    if not rows:
        return
    # PostgreSQL sums whole numbers to decimals
    sums = ", ".join(f'CAST(SUM("{name}") AS bigint)' for name in summed)
    names = ", ".join(groups)
    sql = f"SELECT {names}, {sums} FROM ({rows}) part GROUP BY {names}"  # noqa: S608  # names of our own model
    yield from _answer(at, by, sql, given)


def _answer(at: RollupCursor, by: RollupBy, sql: str, given: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The same statement has the same answer until a batch is counted. Those by tool are too long to be remembered."""
    read = _read.__wrapped__ if by == RollupBy.TOOL else _read
    return read(at.version, sql, tuple(given))


@lru_cache(REMEMBERED)
def _read(_version: int, sql: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with connection.cursor() as database:
        database.execute(sql, given)
        return database.fetchall()


def _rows(
    user: access.User,
    wanted: Dimensions,
    by: RollupBy,
    span: Range,
    longest: int,
    columns: str,
    only: tuple[str, Sequence[Any]] = ("", ()),
) -> tuple[str, list[Any]]:
    """The roll-ups of a range as SQL; empty for an empty range."""
    where, values = _where(user, wanted)
    if only[0]:
        where, values = f"{where} AND {only[0]}", [*values, *only[1]]
    parts, given = [], []
    for level, since, until in _segments(span, longest):
        parts.append(
            f"SELECT {columns} FROM {_TABLE} WHERE {_of(by)} AND level = %s AND start >= %s AND start < %s {where}"  # noqa: S608  # names of our own model
        )
        given += [level, since, until, *values]
    return " UNION ALL ".join(parts), given


def _of(by: RollupBy) -> str:
    """Worded exactly like the partial indexes: with a parameter in it, SQLite would not use them."""
    return f""""by" = '{by.value}'"""


def _where(user: access.User, wanted: Dimensions) -> tuple[str, list[Any]]:
    where = ""
    values: list[Any] = []
    if wanted.server is not None:
        where, values = where + " AND server_uid = %s", [*values, param(CallRollup, "server_uid", wanted.server)]
    if wanted.servers:
        where = f"{where} AND server_uid IN ({', '.join(['%s'] * len(wanted.servers))})"
        values += [param(CallRollup, "server_uid", uid) for uid in sorted(wanted.servers)]
    for column, word in (("target", wanted.tool), ("user_name", wanted.caller)):
        if word is not None:
            where, values = f'{where} AND "{column}" = %s', [*values, word]
    for column, words in (("method", wanted.methods), ("way", wanted.ways), ("state", wanted.states)):
        if words:
            where = f'{where} AND "{column}" IN ({", ".join(["%s"] * len(words))})'
            values += sorted(words)
    if wanted.without_methods:
        where += f" AND method NOT IN ({', '.join(['%s'] * len(wanted.without_methods))})"
        values += sorted(wanted.without_methods)
    if not access.may_see_personal_sessions(user):
        where, values = where + " AND owner_id IN (0, %s)", [*values, user.pk or 0]
    return where, values


def _segments(span: Range, longest: int) -> list[tuple[int, int, int]]:
    """(level, since, until): segments that make up the range without overlap, in slots no longer than `longest`."""
    least = finest(span)
    since, until = span.since - span.since % least, span.until + -span.until % least
    return _split(since, until, [level for level in (86_400, 3_600, 60) if least <= level <= max(longest, least)])


def _split(since: int, until: int, levels: list[int]) -> list[tuple[int, int, int]]:
    if since >= until or not levels:
        return []
    level, *finer = levels
    first, last = since + -since % level, until - until % level
    if first >= last:
        return _split(since, until, finer)
    return [*_split(since, first, finer), (level, first, last), *_split(last, until, finer)]


# --- what is not counted yet -------------------------------------------------------------------------------------------
def uncounted(at: RollupCursor, user: access.User, wanted: Dimensions, span: Range) -> tuple[list[CountedCall], bool]:
    """The calls that no roll-up counts yet, and whether there are more of them."""
    after = Call.objects.filter(pk__gt=at.call_id).order_by("pk")
    new = read(after[:TAIL])
    listed = read(Call.objects.filter(pk__in=UncountedCall.objects.order_by("-pk").values("call_id")[:TAIL]))
    found = [call for call in [*listed, *new] if span.since <= call.at < span.until and _matches(call, user, wanted)]
    return found, len(new) == TAIL


def _matches(call: CountedCall, user: access.User, wanted: Dimensions) -> bool:
    sets: Mapping[str, frozenset[str]] = {"method": wanted.methods, "way": wanted.ways, "state": wanted.states}
    return (
        (wanted.server is None or call.server_uid == wanted.server)
        and (not wanted.servers or call.server_uid in wanted.servers)
        and (wanted.tool is None or call.target == wanted.tool)
        and (wanted.caller is None or call.user_name == wanted.caller)
        and all(not words or getattr(call, name) in words for name, words in sets.items())
        and call.method not in wanted.without_methods
        and (call.owner_id in (0, user.pk) or access.may_see_personal_sessions(user))
    )


def _latency(call: CountedCall) -> list[int]:
    return [int(place == call.bucket) for place in range(BUCKETS)]

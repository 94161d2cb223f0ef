"""Reading the streams: pages by key, counts, facets and the timeline of one call.

A cursor is a boundary between rows: for each stream the key below which rows are older. So a page never repeats or
skips a row, even where two streams do not agree on the time. Each read is bounded: it looks at no more than CANDIDATES
rows of a stream that an index returns, and says how far it came.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any

from django.db import connection
from django.db.models import Case, Q, QuerySet, Value, When

from servers import access
from servers.audit.proof import removals
from servers.audit.proof.key import KeyMissing
from servers.numbers import whole_number
from servers.sql import param
from sessions.explorer import fulltext, indexing, streams
from sessions.explorer.fulltext import Match
from sessions.explorer.language import FREE_TEXT, Query, Term
from sessions.explorer.rows import Facet, Histogram, ResultPage, Row
from sessions.explorer.streams import ARMS, NOTHING, OUTCOMES, Arm, Calls, Stream, plain
from sessions.explorer.timeline import timeline
from sessions.explorer.unions import FoundRow, first_rows, key_at

__all__ = ["Facet", "Histogram", "ResultPage", "Row", "facets", "histogram", "newer_count", "one", "page", "timeline"]

PAGE_SIZE = 50
#: rows that a search looks at, of one stream and at once
CANDIDATES = 5_000
#: rows of a stream that a histogram and facets count
COUNTED = 5_000
FACET_ROWS = 1_000
FACET_VALUES = 10
NEWER = 200
#: rows that an export takes from the full-text index
EVERY = 2**31
#: the clock of a machine may step back: so much the times of neighbouring rows may disagree with their keys
CLOCK_STEP = timedelta(minutes=2)
#: conditions in the order in which their indexes are preferred: what leaves the fewest rows is first
_PREFERRED = ("call", "session", "tool", "server", "duration", "size", "user", "kind", "status", "outcome", "way")
FACETS = {"outcome": "Outcome", "server": "Server", "tool": "Tool", "user": "User", "way": "Source", "kind": "Kind"}


#: of a row on a page: its time in the order of its stream, the stream, the key
Place = tuple[datetime, str, int]


# --- cursors ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Boundary:
    """Rows of a stream with a smaller key are older; without a key for a stream, all of them."""

    keys: dict[str, int]
    newer: bool = False

    def text(self) -> str:
        return ("n" if self.newer else "o") + "".join(f".{name}-{key}" for name, key in self.keys.items())

    @classmethod
    def read(cls, text: str) -> "Boundary":
        """What cannot be a cursor counts as none."""
        direction, *parts = text.split(".")
        keys = {}
        for part in parts:
            name, _, key = part.partition("-")
            if name in streams.STREAMS and (number := whole_number(key)) is not None:
                keys[name] = number
        return cls(keys, direction == "n")


# --- one stream ------------------------------------------------------------------------------------------------------
@dataclass
class Selection:
    """What a query selects of one stream. `base` has all that every arm needs; `low` is included, `high` is not. Of a
    query that only says which words a row must not have, `excluded` finds the rows that have them."""

    stream: Stream
    base: QuerySet[Any]
    arms: list[Arm]
    match: Match | None
    low: int | None = None
    high: int | None = None
    checked: bool = field(default=False)  # whether rows of an arm are still compared with something
    excluded: tuple[Match, ...] = ()

    @property
    def empty(self) -> bool:
        return self.low is not None and self.high is not None and self.low >= self.high

    def within(self, low: int | None = None, high: int | None = None) -> "Selection":
        """The same between these keys."""
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return replace(self, low=max(lows, default=None), high=min(highs, default=None))

    def read(self, count: int, *columns: str, ascending: bool = False) -> tuple[list[FoundRow], int | None]:
        """At most `count` rows, and the key at which the search ended before the range did (None: it did not)."""
        if self.empty:
            return [], None
        part = self._reach(ascending=ascending)
        end = None if part is self else part.high if ascending else part.low
        rest = part._without(fulltext.FOUND)
        parts = [rest.filter(arm.rest, part._range(), part._index(arm, ascending=ascending)) for arm in self.arms]
        rows = first_rows(parts, columns, count, ascending=ascending)
        return rows, end if len(rows) < count else None

    def every(self) -> QuerySet[Any]:
        """All rows, in no order and without a limit of work: to look up single ones. Of a selection without arms."""
        rest = self._without(EVERY).filter(self._range())
        if self.match is None:
            return rest
        return rest.filter(pk__in=self.match.keys(self.stream.name, self.low, self.high, EVERY))

    def _without(self, most: int) -> QuerySet[Any]:
        """At most so many rows are left out for each word."""
        rows = self.base
        for match in self.excluded:
            rows = rows.exclude(pk__in=match.keys(self.stream.name, self.low, self.high, most))
        return rows

    def _range(self) -> Q:
        bounds = {"pk__gte": self.low, "pk__lt": self.high}
        return Q(**{lookup: bound for lookup, bound in bounds.items() if bound is not None})

    def _index(self, arm: Arm, *, ascending: bool) -> Q:
        if self.match is None:
            return arm.index
        keys = self.match.keys(self.stream.name, self.low, self.high, fulltext.FOUND, ascending=ascending)
        return arm.index & Q(pk__in=keys)

    def _reach(self, *, ascending: bool) -> "Selection":
        """The part of it that one read looks at: with no more rows of the index, and no more that it leaves out for a
        word, than one read can take."""
        part = self._up_to(self._end(ascending=ascending), ascending=ascending)
        for match in part.excluded:
            part = part._up_to(part._passed(match, ascending=ascending), ascending=ascending)
        return part

    def _up_to(self, end: int | None, *, ascending: bool) -> "Selection":
        if end is None:
            return self
        return self.within(high=end) if ascending else self.within(low=end)

    def _passed(self, match: Match, *, ascending: bool) -> int | None:
        """The key after which FOUND rows with these words have been passed."""
        last = fulltext.FOUND - 1
        return key_at(match.keys(self.stream.name, self.low, self.high, 1, last, ascending=ascending))

    def _end(self, *, ascending: bool) -> int | None:
        """The key after which CANDIDATES rows of the index have been passed."""
        if self.match is not None:
            return self._passed(self.match, ascending=ascending) if self.checked else None
        if not self.checked or (self.low is not None and self.high is not None and self.high - self.low <= CANDIDATES):
            return None
        table = self.stream.model._default_manager.filter(self._range(), self.stream.index)
        parts = [table.filter(arm.index) for arm in self.arms]
        ends = first_rows(parts, (), 1, ascending=ascending, offset=CANDIDATES // len(parts))
        return ends[0][0] if ends else None


def select(user: access.User, query: Query, stream: Stream, *, by_arms: bool = True) -> Selection | None:
    """None if this person may see none of the stream. Without arms, `base` has all conditions itself."""
    rows = stream.visible(user)
    if rows is None:
        return None
    shown = stream.shown(query)
    rows = rows.alias(**plain(*stream.columns)).filter(stream.index, shown)
    match = stream.free_text(user, query) if query.of(FREE_TEXT) else None
    terms = [term for term in query.terms if term.field != "own" and (term.field or match is None)]
    walked = by_arms and not (match is not None and match.texts)
    driver, arms = _driver(stream, terms) if walked else (None, [Arm(Q())])
    rest = [term for term in terms if term is not driver]
    never = not arms or shown == NOTHING
    for term in rest:
        found = stream.condition(term)
        never |= found == NOTHING and not term.negated
        rows = rows.filter(_none_of(found) if term.negated else found)
    compared = bool(rest) or streams.only_own(query) or any(arm.rest for arm in arms)
    checked = compared or not access.may_see_personal_sessions(user)
    selection = Selection(stream, rows, arms, None, checked=checked)
    if never:
        return replace(selection, low=0, high=0)
    selection = _in_time(selection, query)
    if match is None:
        return selection
    if not all(fulltext.searchable(value) for value in match.texts):
        return replace(selection, low=0, high=0)
    match = replace(match, without=[value for value in match.without if fulltext.searchable(value)])
    if match.texts:  # what is hidden has words too, and may be all that one read takes from their index
        return replace(selection, match=match.probed(stream.name), checked=checked or bool(shown))
    excluded = (replace(match, texts=[value], without=(), tags=()).probed(stream.name) for value in match.without)
    return replace(selection, excluded=tuple(excluded), checked=True)


def _none_of(found: Q) -> Case:
    """Its negation, also true where a column is null."""
    return Case(When(found, then=Value(False)), default=Value(True))


def _driver(stream: Stream, terms: list[Term]) -> tuple[Term | None, list[Arm]]:
    """The condition whose index is read."""
    for name in _PREFERRED:
        for term in (term for term in terms if term.field == name and not term.negated):
            arms = stream.arms(term)
            if arms is not None and len(arms) <= ARMS:
                return term, arms
    return None, [Arm(Q())]


def _in_time(selection: Selection, query: Query) -> Selection:
    """With the range of time as one of keys: the key is what all indexes are ordered by."""
    stream, rows = selection.stream, selection.base
    at = stream.at
    table = stream.model._default_manager.order_by(at, "pk").values_list("pk", flat=True)
    low = high = None
    if query.since is not None:
        rows = rows.filter(**{f"plain_{at}__gte": query.since})
        low = table.filter(**{f"{at}__gte": query.since - CLOCK_STEP}).first()
        low = 2**62 if low is None else low
    if query.until is not None:
        rows = rows.filter(**{f"plain_{at}__lt": query.until})
        high = table.filter(**{f"{at}__gte": query.until + CLOCK_STEP}).first()
    return replace(selection, base=rows, low=low, high=2**62 + 1 if high is None and low is not None else high)


def _selected(user: access.User, query: Query) -> tuple[list[Selection], list[str]]:
    found = [(stream, select(user, query, stream)) for stream in streams.chosen(query)]
    return [one for _, one in found if one is not None], [stream.name for stream, one in found if one is None]


# --- pages -----------------------------------------------------------------------------------------------------------
def page(user: access.User, query: Query, cursor: str = "", limit: int = PAGE_SIZE) -> ResultPage:
    boundary = Boundary.read(cursor)
    by_words = bool(query.of(FREE_TEXT)) and any(one.name in fulltext.STREAMS for one in streams.chosen(query))
    unindexed = indexing.unindexed() if by_words else None  # before the rows: then it never says too little
    selected, hidden = _selected(user, query)
    part = _next(selected, boundary, limit)
    before, behind = Boundary(part.before), Boundary(part.behind)
    older, newer = (before, behind) if boundary.newer else (behind, before)
    return ResultPage(
        _rows(user, part.shown[::-1] if boundary.newer else part.shown),
        older=older.text() if boundary.newer or part.more else "",
        newer=replace(newer, newer=True).text() if (part.more if boundary.newer else boundary.keys) else "",
        newest=newer.text(),
        ascending=boundary.newer,
        searched_to=part.searched_to,
        hidden=hidden,
        unindexed=unindexed,
        removed=removed(user, query),
    )


def removed(user: access.User, query: Query) -> datetime | None:
    """Before which time the retention removed calls, if the query asks for calls from then. None if nothing is known."""
    asked = any(stream.name == Calls.name for stream in streams.chosen(query))
    if not asked or not access.may(user, "view"):
        return None
    try:
        before = removals.newest("calls")
    except KeyMissing:
        return None
    return before if before is not None and (query.since is None or query.since < before) else None


@dataclass(frozen=True)
class _Part:
    """The rows of a page in the direction of its boundary; `before` and `behind` are the boundaries around them."""

    shown: list[Place]
    before: dict[str, int]
    behind: dict[str, int]
    more: bool
    searched_to: datetime | None


def _next(selected: list[Selection], boundary: Boundary, limit: int) -> _Part:
    """The next rows from the boundary on.

    A stream is in the order of its keys. Its times rise with them, but of two rows that are written at once the first
    may have the later time. So no row is placed before one that precedes it in its stream: what a page leaves out of a
    stream lies behind all that it shows.
    """
    ascending = boundary.newer
    farther, nearest = (max, min) if ascending else (min, max)
    found: list[Place] = []
    before = dict(boundary.keys)
    ends: dict[str, tuple[datetime, int]] = {}
    for selection in selected:
        stream = selection.stream
        bound = before.get(stream.name)
        range_ = selection.within(low=bound or 0) if ascending else selection.within(high=bound)
        rows, end = range_.read(limit + 1, stream.at, ascending=ascending)
        before.setdefault(stream.name, 0 if ascending or not rows else rows[0][0] + 1)
        times = list(accumulate((_moment(at) for _, at in rows), farther))
        found += [(at, stream.name, key) for at, (key, _) in zip(times, rows, strict=True)]
        if end is not None:
            ends[stream.name] = farther([*times[-1:], _time_of(stream, end)]), end
    found.sort(reverse=not ascending)
    searched_to = nearest((at for at, _ in ends.values()), default=None)
    reached = [place for place in found if searched_to is None or farther(place[0], searched_to) == searched_to]
    shown = reached[:limit]
    behind = before | {name: key + 1 if ascending else key for _, name, key in shown}
    if len(reached) > limit:
        return _Part(shown, before, behind, more=True, searched_to=None)
    left = {name for _, name, _ in found[len(shown) :]}
    behind |= {name: end for name, (_, end) in ends.items() if name not in left}
    return _Part(shown, before, behind, more=bool(ends), searched_to=searched_to)


def _rows(user: access.User, places: list[Place]) -> list[Row]:
    """In the order of `places`."""
    keys: dict[str, list[int]] = {}
    for _, name, key in places:
        keys.setdefault(name, []).append(key)
    found = {(name, row.key): row for name, some in keys.items() for row in streams.STREAMS[name].rows(user, some)}
    return [found[name, key] for _, name, key in places if (name, key) in found]


def _moment(at: str | datetime) -> datetime:
    """SQLite's driver returns times without a zone, and text where it does not know the type."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _time_of(stream: Stream, key: int) -> datetime:
    rows = stream.model._default_manager.filter(pk__gte=key).order_by("pk").values_list(stream.at, flat=True)
    return rows.first() or datetime.now(UTC)


def newer_count(user: access.User, query: Query, newest: str) -> int:
    """How many rows have come since a page whose `newest` this is, at most NEWER."""
    keys = Boundary.read(newest).keys
    found = 0
    for selection in _selected(user, query)[0]:
        found += len(selection.within(low=keys.get(selection.stream.name, 0)).read(NEWER)[0])
    return min(found, NEWER)


def one(user: access.User, stream: str, key: int) -> Row | None:
    """None also for a row that this person may not see."""
    source = streams.STREAMS.get(stream)
    found = source.rows(user, [key]) if source and key < 2**63 else []
    return found[0] if found else None


# --- numbers ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Grid:
    """`step`: of the bars, in seconds."""

    start: datetime
    step: float


def histogram(user: access.User, query: Query, buckets: int = 60, grid: Grid | None = None) -> Histogram:
    """Of the newest COUNTED rows of each stream. `grid`: the bars of another chart, which may begin before the range and end
    after it."""
    counted: list[tuple[Stream, list[FoundRow]]] = []
    partial = False
    for selection in _selected(user, query)[0]:
        rows, end = selection.read(COUNTED, selection.stream.outcome)
        partial |= end is not None or len(rows) == COUNTED
        if rows:
            counted.append((selection.stream, rows))
    grid = grid or _grid(query, [_time_of(stream, rows[-1][0]) for stream, rows in counted], buckets)
    series = {outcome: [0] * buckets for outcome in OUTCOMES}
    for stream, rows in counted:
        starts = _starts(stream, [grid.start + timedelta(seconds=grid.step * number) for number in range(1, buckets)])
        keys, exact = zip(*reversed(rows), strict=True)
        ends = accumulate([0, *(bisect_left(keys, start) for start in starts), len(keys)], max)
        for place, (first, last) in enumerate(pairwise(ends)):
            for outcome, count in Counter(exact[first:last]).items():
                series[stream.outcome_of(outcome)][place] += count
    shown = {name: counts for name, counts in series.items() if any(counts)}
    return Histogram(grid.start, grid.step, shown, partial)


def _grid(query: Query, oldest: list[datetime], buckets: int) -> Grid:
    until = query.until or datetime.now(UTC)
    since = query.since or min(oldest, default=until - timedelta(hours=1))
    return Grid(since, max((until - since).total_seconds() / buckets, 1.0))


def _starts(stream: Stream, times: list[datetime]) -> list[int]:
    """For each time the first key from it on: to sort rows into buckets without reading their times."""
    if not times:
        return []
    first = stream.model._default_manager.filter(**{f"{stream.at}__gte": times[0]}).order_by(stream.at, "pk")
    # compiled once, with another time in the place of its only parameter for each part
    sql, _ = first.values("pk")[:1].query.sql_with_params()
    parts = [f"SELECT {number}, ({sql})" for number in range(len(times))]
    with connection.cursor() as cursor:
        values = [param(stream.model, stream.at, moment) for moment in times]
        cursor.execute(" UNION ALL ".join(parts), values)  # the ORM's own SQL, with parameters
        found = dict(cursor.fetchall())
    starts = [found[number] for number in range(len(times))]
    return [2**62 if key is None else int(key) for key in starts]


def facets(user: access.User, query: Query) -> list[Facet]:
    """Facets of the newest FACET_ROWS rows of each stream."""
    values: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in FACETS}
    partial = False
    for selection in _selected(user, query)[0]:
        stream = selection.stream
        rows, end = selection.read(FACET_ROWS, *stream.facets.values(), *(stream.server_then or ())[:1])
        partial |= end is not None or len(rows) == FACET_ROWS
        columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True))[1:]
        for name, column in zip(stream.facets, columns, strict=False):
            if name == "server" and stream.server_then is not None:
                column = streams.present_names(stream.server_then[1], columns[-1], column)
            for stored, count in Counter(column).items():
                if stored:
                    values[name][stream.facet_value(name, stored)] += count
    return [
        Facet(name, label, [(*value, count) for value, count in values[name].most_common(FACET_VALUES)], partial)
        for name, label in FACETS.items()
    ]

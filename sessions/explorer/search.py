"""Reading the streams: pages by key, counts, facets and the timeline of one call.

A cursor is a boundary between rows: for each stream the key below which rows are older. So a page never repeats or
skips a row, even where two streams do not agree on the time.
"""

import heapq
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from servers import access
from servers.numbers import whole_number
from sessions.explorer import streams
from sessions.explorer.language import Query
from sessions.explorer.rows import Facet, Histogram, ResultPage, Row, TimelineEntry
from sessions.explorer.streams import OUTCOMES, Stream
from sessions.models import Call

__all__ = [
    "Facet",
    "Histogram",
    "ResultPage",
    "Row",
    "TimelineEntry",
    "facets",
    "histogram",
    "newer_count",
    "one",
    "page",
]

PAGE_SIZE = 50
COUNTED = 20_000
NEWER = 200
#: facet -> (label, attribute of a row)
_FACETS = {"outcome": "Outcome", "server": "Server", "tool": "Tool", "user": "Who", "way": "Way in", "kind": "Kind"}


@dataclass(frozen=True)
class _Boundary:
    """Rows of a stream with a smaller key are older; without a key for a stream, all of them."""

    keys: dict[str, int]
    newer: bool = False

    def text(self) -> str:
        return ("n" if self.newer else "o") + "".join(f".{name}-{key}" for name, key in self.keys.items())

    @classmethod
    def read(cls, text: str) -> "_Boundary":
        """What cannot be a cursor counts as none."""
        direction, *parts = text.split(".")
        keys = {}
        for part in parts:
            name, _, key = part.partition("-")
            if name in streams.STREAMS and (number := whole_number(key)) is not None:
                keys[name] = number
        return cls(keys, direction == "n")


def page(user: access.User, query: Query, cursor: str = "", limit: int = PAGE_SIZE) -> ResultPage:
    boundary = _Boundary.read(cursor)
    selected, hidden = _selected(user, query)
    rows: list[Row] = []
    tops: dict[str, int] = {}
    for stream, found in selected:
        key = boundary.keys.get(stream.name)
        if boundary.newer:
            found = found.filter(pk__gte=key or 0).order_by("pk")
        else:
            found = (found if key is None else found.filter(pk__lt=key)).order_by("-pk")
        part = [stream.row(user, item) for item in found[: limit + 1]]
        tops[stream.name] = part[0].key + 1 if part and not boundary.newer else 0
        rows += part
    rows.sort(key=lambda row: (row.at, row.stream, row.key), reverse=not boundary.newer)
    shown, more = rows[:limit], len(rows) > limit
    if boundary.newer:
        above = dict(boundary.keys)
        for row in shown:
            above[row.stream] = row.key + 1
        older = _Boundary(boundary.keys).text()
        newer = _Boundary(above, newer=True).text() if more else ""
        return ResultPage(shown[::-1], older, newer, _Boundary(above).text(), hidden=hidden)
    below = dict(boundary.keys)
    for row in shown:
        below[row.stream] = row.key
    older = _Boundary(below).text() if more else ""
    newer = _Boundary(boundary.keys, newer=True).text() if boundary.keys else ""
    return ResultPage(shown, older, newer, _Boundary(tops).text(), hidden=hidden)


def _selected(user: access.User, query: Query) -> tuple[list[tuple[Stream, Any]], list[str]]:
    selected, hidden = [], []
    for stream in streams.chosen(user, query):
        found = stream.select(user, query)
        if found is None:
            hidden.append(stream.name)
        else:
            selected.append((stream, found))
    return selected, hidden


def newer_count(user: access.User, query: Query, newest: str) -> int:
    """How many rows have come since a page whose `newest` this is, at most NEWER."""
    keys = _Boundary.read(newest).keys
    selected, _ = _selected(user, query)
    found = sum(len(rows.filter(pk__gte=keys.get(stream.name, 0)).values("pk")[:NEWER]) for stream, rows in selected)
    return min(found, NEWER)


def one(user: access.User, stream: str, key: int) -> Row | None:
    """None also for a row that this person may not see."""
    source = streams.STREAMS.get(stream)
    rows = source.visible(user) if source else None
    found = rows.filter(pk=key).first() if rows is not None else None
    return source.row(user, found) if source and found is not None else None


def _newest(user: access.User, query: Query) -> tuple[list[Row], bool]:
    """The newest rows of the query, at most COUNTED, and whether there are more."""
    selected, _ = _selected(user, query)
    parts = [[stream.row(user, item) for item in rows.order_by("-pk")[: COUNTED + 1]] for stream, rows in selected]
    rows = list(heapq.merge(*parts, key=lambda row: row.at, reverse=True))
    return rows[:COUNTED], len(rows) > COUNTED


def histogram(user: access.User, query: Query, buckets: int = 60) -> Histogram:
    rows, partial = _newest(user, query)
    until = query.until or datetime.now(UTC)
    since = query.since or (rows[-1].at if rows else until)
    step = max((until - since).total_seconds() / buckets, 1.0)
    series = {outcome: [0] * buckets for outcome in OUTCOMES}
    for row in rows:
        place = min(buckets - 1, max(0, int((row.at - since).total_seconds() / step)))
        series[row.outcome][place] += 1
    return Histogram(since, step, {name: counts for name, counts in series.items() if any(counts)}, partial)


def facets(user: access.User, query: Query) -> list[Facet]:
    rows, partial = _newest(user, query)
    values: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in _FACETS}
    for row in rows:
        values["outcome"][row.outcome, OUTCOMES[row.outcome][0]] += 1
        for name, value in (("server", row.server_name), ("user", row.who), ("way", row.way), ("kind", row.kind)):
            values[name][value, value] += 1
        if row.stream == "calls":
            values["tool"][row.target, row.target] += 1
    return [
        Facet(name, label, [(*value, count) for value, count in values[name].most_common(10) if value[0]], partial)
        for name, label in _FACETS.items()
    ]


def timeline(user: access.User, call: Call) -> list[TimelineEntry]:
    """What happened to a call, oldest first; empty without the right to read the log."""
    if not access.may(user, "view_auditevent"):
        return []
    events = access.audit_events(user).filter(call_uid=call.uid).order_by("seq")
    return [
        TimelineEntry(
            event.at,
            event.action.rpartition(":")[2],
            streams.audit.action_word(event.action),
            who=event.actor_name,
            seq=event.seq,
        )
        for event in events[:100]
    ]

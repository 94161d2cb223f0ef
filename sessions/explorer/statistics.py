"""Histogram and facets of a query: from the roll-ups of calls if these distinguish its conditions, so that they cost
the same at a thousand and at ten million calls; otherwise counted row by row within the limits of the search."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Min

from servers import access
from sessions.explorer import search, streams
from sessions.explorer.language import Query, Term
from sessions.explorer.rows import Facet, Histogram
from sessions.mcp.core.methods import COMPLETE
from sessions.models import CallRollup
from sessions.models.statistics import RollupBy, RollupLevel
from sessions.statistics import reading
from sessions.statistics.figures import Dimensions, Range

CALLS = "calls"
#: fewer bars than this are too coarse for a chart, if the rows can be counted instead
COARSE = 12
#: roll-ups -> facet -> its column
_COLUMNS = {
    RollupBy.TOTAL: {"outcome": "state", "way": "way", "kind": "method"},
    RollupBy.SERVER: {"server": "server_name"},  # and server_uid, for its current name
    RollupBy.TOOL: {"tool": "target"},
    RollupBy.CALLER: {"user": "user_name"},
}
_VALUES = 10
#: roll-ups of one kind that facets read; above that, the newest rows are counted, which costs less
ROLLUPS_READ = 5_000


def histogram(user: access.User, query: Query, buckets: int = 60) -> Histogram:
    names = {stream.name for stream in streams.chosen(query)}
    wanted = dimensions_of(query) if CALLS in names and access.may(user, "view") else None
    span = _span(query)
    if wanted is None or span is None:
        return search.histogram(user, query, buckets)
    step = reading.step_for(span, buckets)
    if (span.until - span.since) / step < COARSE:
        counted = search.histogram(user, query, buckets)
        if not counted.partial:
            return counted
    calls = reading.series(user, wanted, span, step, latency=False)
    found: dict[str, list[int]] = {outcome: [0] * len(calls.points) for outcome in streams.OUTCOMES}
    for place, numbers in enumerate(calls.points):
        for state, count in numbers.states.items():
            found[streams.OUTCOME_OF_STATE.get(state, "error")][place] += count
    partial = False
    if others := names - {CALLS}:
        rest = replace(query, streams=frozenset(others), since=query.since or calls.start)
        added = search.histogram(user, rest, len(calls.points), search.Grid(calls.start, step))
        partial = added.partial
        for outcome, counts in added.series.items():
            found[outcome] = [one + other for one, other in zip(found[outcome], counts, strict=True)]
    shown = {outcome: counts for outcome, counts in found.items() if any(counts)}
    removed = search.removed(user, query) is not None
    rounded = reading.rounding(span, query.since, query.until)
    return Histogram(calls.start, float(step), shown, partial, removed, rounded, calls.behind)


def facets(user: access.User, query: Query) -> list[Facet]:
    """If the range has many different cells, a facet of calls is counted over the newest rows."""
    names = {stream.name for stream in streams.chosen(query)}
    wanted = dimensions_of(query) if CALLS in names and access.may(user, "view") else None
    span = _span(query)
    if wanted is None or span is None or wanted.by != RollupBy.TOTAL:
        return search.facets(user, query)
    counts: dict[str, Counter[tuple[str, str]]] = {field: Counter() for field in search.FACETS}
    groups = {by: list(columns.values()) for by, columns in _COLUMNS.items()}
    groups[RollupBy.SERVER].append("server_uid")
    counted = reading.counts(user, wanted, span, groups, ROLLUPS_READ)
    partial = dict.fromkeys(search.FACETS, False)
    missing: set[str] = set()
    for by, columns in _COLUMNS.items():
        if by not in counted.calls:
            missing |= set(columns)
            continue
        found = counted.calls[by]
        if by == RollupBy.SERVER:
            found = _with_present_names(found)
        for values, count in found.items():
            for field, stored in zip(columns, values, strict=True):
                counts[field][streams.STREAMS[CALLS].facet_value(field, stored)] += count
    sampled = [(frozenset(names - {CALLS}), set(search.FACETS)), (frozenset({CALLS}), missing)]
    for some, fields in sampled:
        for facet in search.facets(user, replace(query, streams=some)) if some and fields else ():
            if facet.field in fields:
                partial[facet.field] |= facet.partial
                counts[facet.field].update({(value, words): count for value, words, count in facet.values})
    return [
        Facet(
            field,
            label,
            [(*key, count) for key, count in counts[field].most_common(_VALUES) if key[0]],
            partial[field],
            counted.behind and field not in missing,
        )
        for field, label in search.FACETS.items()
    ]


def _with_present_names(counted: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    names = streams.present_names("uid", [uid for _, uid in counted], [name for name, _ in counted])
    found: Counter[tuple[Any, ...]] = Counter()
    for name, count in zip(names, counted.values(), strict=True):
        found[name,] += count
    return found


def _span(query: Query) -> Range | None:
    """None if the range has no start and nothing was ever counted."""
    until = query.until or datetime.now(UTC) + timedelta(seconds=1)
    since = query.since
    if since is None:
        first = CallRollup.objects.filter(by=RollupBy.TOTAL, level=RollupLevel.DAY).aggregate(first=Min("start"))
        if first["first"] is None:
            return None
        since = datetime.fromtimestamp(first["first"], UTC)
    return Range.of(since, until)


# --- from a query to dimensions ----------------------------------------------------------------------------------------
def dimensions_of(query: Query) -> Dimensions | None:
    """None if the roll-ups do not distinguish the query's conditions."""
    found: dict[str, Any] = {"without_methods": frozenset({COMPLETE})}
    seen: set[str] = set()
    for term in query.terms:
        read = _READERS.get(term.field)
        if read is None or term.negated or term.field in seen or not all(value.exact for value in term.values):
            return None
        seen.add(term.field)
        understood = read(term)
        if understood is None:
            return None
        found |= understood
    if {"outcome", "status"} <= seen or {"kind", "own"} <= seen or ("user" in seen and seen & {"server", "tool"}):
        return None
    return Dimensions(**found)


def _server(term: Term) -> dict[str, Any] | None:
    if len(term.values) > 1 or streams.deleted_servers(term):  # the list shows the calls of both
        return None
    uids = list(streams.servers(term).values_list("uid", flat=True)[:2])
    return {"server": uids[0]} if len(uids) == 1 else None


def _tool(term: Term) -> dict[str, Any] | None:
    return {"tool": term.values[0].text} if len(term.values) == 1 else None


def _user(term: Term) -> dict[str, Any] | None:
    names = get_user_model()._default_manager.filter(username__iexact=term.values[0].text)
    found = list(names.values_list("username", flat=True)[:2])
    return {"caller": found[0]} if len(term.values) == 1 and len(found) == 1 else None


def _outcome(term: Term) -> dict[str, Any]:
    wanted = {value.text.lower() for value in term.values}
    return {
        "states": frozenset(state for state, outcome in streams.OUTCOME_OF_STATE.items() if outcome in wanted) or {""}
    }


def _status(term: Term) -> dict[str, Any]:
    return {"states": frozenset(value.text for value in term.values)}


def _kind(term: Term) -> dict[str, Any]:
    methods = frozenset(streams.METHODS.get(value.text, value.text) for value in term.values)
    return {"methods": methods, "without_methods": frozenset()}


def _own(term: Term) -> dict[str, Any]:
    only = {value.text for value in term.values} == {"only"}
    return {"without_methods": frozenset(), **({"methods": frozenset({COMPLETE})} if only else {})}


def _way(term: Term) -> dict[str, Any]:
    return {"ways": frozenset(value.text for value in term.values)}


_READERS: dict[str, Callable[[Term], dict[str, Any] | None]] = {
    "server": _server,
    "tool": _tool,
    "user": _user,
    "outcome": _outcome,
    "status": _status,
    "kind": _kind,
    "own": _own,
    "way": _way,
}

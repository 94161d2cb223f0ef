"""Which events an export holds: all, or those of the audit page's filters or of a query."""

from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl

from django.db.models import QuerySet

from servers import access
from servers.audit.query import Filters
from servers.models import AuditEvent, Export

#: numbers of one read: with a filter that few events pass, each read still is short
WINDOW = 2_000
#: (user, query text) -> the events that it finds among those that the user may see
QueryEvents = Callable[[access.User, str], "QuerySet[AuditEvent]"]
_query_events: QueryEvents | None = None


def understands(reading: QueryEvents) -> None:
    """The explorer registers its query language, which this app does not know."""
    global _query_events
    _query_events = reading


class QueryNotUnderstood(Exception):
    """For the page: an error of the query, or no query language is installed."""


def events_of(user: access.User, filters: str, query: str) -> "QuerySet[AuditEvent]":
    """Raises Denied, QueryNotUnderstood."""
    events = access.audit_events(user)
    if query:
        if _query_events is None:
            raise QueryNotUnderstood("Queries cannot be exported in this installation.")
        events = _query_events(user, query)
    return Filters.read(dict(parse_qsl(filters))).apply(events) if filters else events


def is_filtered(export: Export) -> bool:
    return bool(export.filters or export.query)


def in_words(export: Export) -> str:
    """For the file and for pages: the query, or the filters as name=value."""
    filters = ", ".join(f"{name}={value}" for name, value in parse_qsl(export.filters))
    return " · ".join(part for part in (export.query, filters) if part)


def windows(events: "QuerySet[AuditEvent]", first: int, last: int) -> Iterator[tuple[int, list[AuditEvent]]]:
    """Events from `first` to `last` by number, both included, in bounded reads: each with the number reached."""
    for start in range(first, last + 1, WINDOW):
        end = min(start + WINDOW - 1, last)
        yield end, list(events.filter(seq__gte=start, seq__lte=end).order_by("seq"))


def first_seq(export: Export) -> int:
    """Of a schedule: the event after those of the export before. Else the oldest that is stored."""
    oldest = AuditEvent.objects.order_by("seq").values_list("seq", flat=True).first() or 1
    return max(export.after_seq + 1, oldest)

"""Which events an export contains: all, or those that a query finds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from django.db.models import QuerySet
from django.utils import timezone

from servers import access
from servers.models import AuditEvent, Export

#: event numbers per read: with a filter that few events match, each read is still short
WINDOW = 2_000
#: (user, query text, the moment from which its relative times count) -> the events that it finds among those that the user
#: may see
QueryEvents = Callable[[access.User, str, datetime], "QuerySet[AuditEvent]"]
#: (query text, the same moment, number of an event, called after each batch): returns once the query finds all events
#: up to this one
Reach = Callable[[str, datetime, int, Callable[[], None]], None]


class QueryField(Protocol):
    """`label` describes what `example` finds."""

    @property
    def example(self) -> str: ...
    @property
    def label(self) -> str: ...


@dataclass(frozen=True)
class QueryLanguage:
    events_of: QueryEvents
    reach: Reach
    fields: Sequence[QueryField]


_language: QueryLanguage | None = None


def understands(language: QueryLanguage) -> None:
    """The explorer registers its query language here, because this app must not import it."""
    global _language
    _language = language


def fields() -> Sequence[QueryField]:
    """The fields of the query language, for its help."""
    return _language.fields if _language is not None else ()


class QueryNotUnderstood(Exception):
    """The query has an error, or no query language is installed. The message is for the page."""


def events_of(user: access.User, query: str, now: datetime | None = None) -> "QuerySet[AuditEvent]":
    """An empty query finds all. `now`: the time that `last:1h` counts from. Raises Denied, QueryNotUnderstood."""
    if not query:
        return access.audit_events(user)
    if _language is None:
        raise QueryNotUnderstood("This installation cannot export by query.")
    return _language.events_of(user, query, now or timezone.now())


def reach(query: str, now: datetime, seq: int, on_batch: Callable[[], None]) -> None:
    """Call it before the events of a query are read: waits until the query finds everything up to event `seq`."""
    if query and _language is not None:
        _language.reach(query, now, seq, on_batch)


def windows(events: "QuerySet[AuditEvent]", first: int, last: int) -> Iterator[tuple[int, list[AuditEvent]]]:
    """Events from `first` to `last` by number, both included, in bounded reads: each with the number reached."""
    for start in range(first, last + 1, WINDOW):
        end = min(start + WINDOW - 1, last)
        yield end, list(events.filter(seq__gte=start, seq__lte=end).order_by("seq"))


def first_seq(export: Export) -> int:
    """For a schedule: the event after those of the previous export. Otherwise the oldest stored event."""
    oldest = AuditEvent.objects.order_by("seq").values_list("seq", flat=True).first() or 1
    return max(export.after_seq + 1, oldest)


def begins_at(export: Export) -> int:
    """The number of the first event in it. Without a query there are no gaps, so a finished export shows how much
    retention had removed before it."""
    whole = not export.query and export.events
    return export.last_seq - export.events + 1 if whole else export.after_seq + 1

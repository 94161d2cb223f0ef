"""The audit events that a query selects, for exports: all steps of the calls that it finds, and the other events."""

from collections.abc import Callable
from datetime import UTC, datetime

from django.db.models import Exists, OuterRef, Q, QuerySet

from servers import access
from servers.exporting import selection
from servers.models import AuditEvent
from servers.models.audit import CALL_STEPS
from sessions.explorer import indexing, search, streams
from sessions.explorer.language import FIELDS, FREE_TEXT, Query, QueryError, parse
from sessions.explorer.streams import any_of

#: how a row of a stream is found from an event
_EVENT = {"calls": Q(action__in=CALL_STEPS), "events": ~Q(action__in=CALL_STEPS)}


def events_of(user: access.User, text: str, now: datetime) -> QuerySet[AuditEvent]:
    """Log lines and messages are no audit events: what a query says of them does not count. Raises QueryNotUnderstood."""
    query = _query(text, now)
    found = []
    for stream in streams.chosen(query):
        if stream.name not in _EVENT or (selected := search.select(user, query, stream, by_arms=False)) is None:
            continue
        row = Q(uid=OuterRef("call_uid")) if stream.name == "calls" else Q(pk=OuterRef("pk"))
        found.append(_EVENT[stream.name] & Q(Exists(selected.every().filter(row))))
    return access.audit_events(user).filter(any_of(found))


def reach(text: str, now: datetime, seq: int, on_batch: Callable[[], None]) -> None:
    """Free text finds what is indexed. What an export misses, no later one of its schedule would have."""
    if _query(text, now).of(FREE_TEXT):
        indexing.reach(seq, on_batch)


def _query(text: str, now: datetime) -> Query:
    """Times without a zone are in UTC."""
    try:
        return parse(text, now.astimezone(UTC))
    except QueryError as problem:
        raise selection.QueryNotUnderstood(problem.message) from problem


def register() -> None:
    selection.understands(selection.QueryLanguage(events_of, reach, tuple(FIELDS.values())))

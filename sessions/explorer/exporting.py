"""The audit events that a query selects, for exports: all events of the calls that it finds, and the other events."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from django.db.models import Exists, OuterRef, Q, QuerySet

from servers import access
from servers.enums import AuditAction
from servers.exporting import selection
from servers.models import AuditEvent
from servers.models.audit import CALL_STEPS
from sessions.explorer import indexing, search, streams
from sessions.explorer.language import FIELDS, FREE_TEXT, Query, QueryError, Term, Value, parse
from sessions.explorer.streams import STEPS, any_of
from sessions.models import Call

#: the events from which the rows of a stream are found
_EVENT = {"calls": Q(call_uid__isnull=False), "events": ~Q(action__in=CALL_STEPS)}
#: fields that the event of a call's end contains; the event of its request contains all others
_OF_THE_END = ("outcome", "status")


def events_of(user: access.User, text: str, now: datetime) -> QuerySet[AuditEvent]:
    """Log lines and messages are not audit events: conditions on them are ignored. Raises QueryNotUnderstood."""
    query = _query(text, now)
    found = []
    for stream in streams.chosen(query):
        if stream.name not in _EVENT or (selected := search.select(user, query, stream, by_arms=False)) is None:
            continue
        if stream.name == "calls":
            stored = Q(Exists(selected.every().filter(uid=OuterRef("call_uid"))))
            found.append(_EVENT["calls"] & (stored | _removed(user, query)))
        else:
            only = Q() if stream is STEPS else _EVENT[stream.name]
            found.append(only & Q(Exists(selected.every().filter(pk=OuterRef("pk")))))
    return access.audit_events(user).filter(any_of(found))


def _removed(user: access.User, query: Query) -> Q:
    """Events of calls that the retention removed, matched by the events alone. A condition that needs the row
    (duration, size, session, words) finds none."""
    asked = tuple(term for term in query.terms if term.field not in _OF_THE_END)
    ended = tuple(term for term in query.terms if term.field in _OF_THE_END)
    found = ~Q(Exists(Call.objects.filter(uid=OuterRef("call_uid"))))
    found &= _with_step(user, replace(query, terms=asked), AuditAction.CALL_REQUEST)
    if ended:
        found &= _with_step(user, replace(query, since=None, until=None, terms=ended), AuditAction.CALL_FINISH)
    return found


def _with_step(user: access.User, query: Query, step: AuditAction) -> Q:
    """Events of a call one of whose events is this step and matches the query."""
    named = replace(query, terms=(*query.terms, Term("kind", (Value(step),))))
    selected = search.select(user, named, STEPS, by_arms=False)
    return streams.NOTHING if selected is None else Q(Exists(selected.every().filter(call_uid=OuterRef("call_uid"))))


def reach(text: str, now: datetime, seq: int, on_batch: Callable[[], None]) -> None:
    """Free text finds only what is indexed. What an export misses, no later export of its schedule contains."""
    if _query(text, now).of(FREE_TEXT):
        indexing.reach(seq, on_batch)


def _query(text: str, now: datetime) -> Query:
    """Times without a zone are UTC."""
    try:
        return parse(text, now.astimezone(UTC))
    except QueryError as problem:
        raise selection.QueryNotUnderstood(problem.message) from problem


def register() -> None:
    selection.understands(selection.QueryLanguage(events_of, reach, tuple(FIELDS.values())))

"""Reading the log: filters that stand in the URL, pages by key, and rows for those who catch up."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from servers.audit.record import CHAIN
from servers.enums import AuditAction, AuditOutcome
from servers.models import AuditEvent, AuditHead
from servers.numbers import whole_number

PAGE_SIZE = 50
CATCH_UP_LIMIT = 500
#: group -> (label, beginnings of the actions in it); an action belongs to the first group that fits
GROUPS = {
    "calls": ("Calls", ("call:",)),
    "inbox": ("Inbox", ("inbox:",)),
    "sessions": ("Sessions and tests", ("server:session:", "server:connection:")),
    "credentials": ("Credentials", ("server:credential:",)),
    "servers": ("Servers", ("server:",)),
    "sign-in": ("Sign-in and passwords", ("account:session:", "account:password:")),
    "instance": ("Instance", ("instance:",)),
    "rights": ("Accounts and rights", ("account:",)),
}
_TONES = {
    AuditOutcome.OK: "ok",
    AuditOutcome.DENIED: "viol",
    AuditOutcome.FAILED: "bad",
    AuditOutcome.TOOL_ERROR: "bad",
    AuditOutcome.RPC_ERROR: "bad",
    AuditOutcome.UNKNOWN: "warn",
    AuditOutcome.PENDING: "run",
}
_SEARCHED = ("subject", "server_name", "actor_name", "identity_name", "ip", "request_id")


def group_of(action: str) -> str:
    return next(name for name, (_, beginnings) in GROUPS.items() if action.startswith(beginnings))


def actions_of(group: str) -> list[AuditAction]:
    return [action for action in AuditAction if group_of(action) == group]


@dataclass(frozen=True)
class Filters:
    """`kind` is a group or one action; `since` and `until` are included. Empty means any."""

    kind: str = ""
    server: str = ""
    user: str = ""
    outcome: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> "Filters":
        """From a query string. What cannot be a filter counts as none."""
        words: dict[str, Any] = {item.name: str(params.get(item.name) or "").strip()[:200] for item in fields(cls)}
        words |= {name: _moment(words[name]) for name in ("since", "until")}
        if words["kind"] not in GROUPS and words["kind"] not in AuditAction.values:
            words["kind"] = ""
        if words["outcome"] not in AuditOutcome.values:
            words["outcome"] = ""
        return cls(**words)

    def __bool__(self) -> bool:
        return any(getattr(self, item.name) for item in fields(self))

    def text_form(self) -> str:
        """As a query string, in one spelling for the same filters."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        words = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
        return urlencode({name: value for name, value in words.items() if value})

    def apply(self, events: QuerySet[AuditEvent]) -> QuerySet[AuditEvent]:
        return events.filter(self._kind(), self._server(), self._text(), **self._exact())

    def arms(self, events: QuerySet[AuditEvent]) -> list[QuerySet[AuditEvent]]:
        """The same events in parts, each of which one index returns in order: one part per action of a group."""
        if not self.kind or self.kind in AuditAction.values:
            return [self.apply(events)]
        rest = replace(self, kind="").apply(events)
        return [rest.filter(action=action) for action in actions_of(self.kind)]

    def _exact(self) -> dict[str, Any]:
        lookups = {"actor_name": self.user, "outcome": self.outcome, "at__gte": self.since, "at__lte": self.until}
        return {lookup: value for lookup, value in lookups.items() if value}

    def _kind(self) -> Q:
        if not self.kind:
            return Q()
        return Q(action=self.kind) if self.kind in AuditAction.values else Q(action__in=actions_of(self.kind))

    def _server(self) -> Q:
        """By uid, as links say it, or by the name that the events keep."""
        if not self.server:
            return Q()
        uid = _uid(self.server)
        return Q(server_uid=uid) if uid else Q(server_name=self.server)

    def _text(self) -> Q:
        if not self.text:
            return Q()
        found = Q()
        for name in _SEARCHED:
            found |= Q(**{f"{name}__icontains": self.text})
        if uid := _uid(self.text):
            found |= Q(call_uid=uid) | Q(server_uid=uid)
        if (number := whole_number(self.text.removeprefix("#"))) is not None:
            found |= Q(seq=number)
        return found


def _moment(text: str) -> datetime | None:
    """A time without a zone is UTC, as the page says."""
    try:
        moment = parse_datetime(text)
    except ValueError:  # well-formed but impossible, such as 30 February
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _uid(text: str) -> UUID | None:
    try:
        return UUID(text) if len(text) in (32, 36) else None
    except ValueError:
        return None


# --- pages -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class EventPage:
    """Newest first. `newer` is the value of ?after= for the page above, `older` of ?before= for the one below."""

    events: list[AuditEvent]
    newer: int | None
    older: int | None

    @property
    def newest_seq(self) -> int:
        return self.events[0].seq if self.events else 0


def page(
    events: QuerySet[AuditEvent], filters: Filters | None = None, before: int | None = None, after: int | None = None
) -> EventPage:
    """One page by key: no OFFSET and no COUNT, so the millionth page costs what the first does."""
    arms = (filters or Filters()).arms(events)
    if after is not None:
        rows = _first([arm.filter(seq__gt=after) for arm in arms], "seq", PAGE_SIZE + 1)
        shown = rows[:PAGE_SIZE][::-1]
        newer = shown[0].seq if len(rows) > PAGE_SIZE else None
        older = shown[-1].seq if shown and _any([arm.filter(seq__lte=after) for arm in arms]) else None
        return EventPage(shown, newer, older)
    bounded = arms if before is None else [arm.filter(seq__lt=before) for arm in arms]
    rows = _first(bounded, "-seq", PAGE_SIZE + 1)
    shown = rows[:PAGE_SIZE]
    moved = before is not None and shown
    newer = shown[0].seq if moved and _any([arm.filter(seq__gt=shown[0].seq) for arm in arms]) else None
    return EventPage(shown, newer, shown[-1].seq if len(rows) > PAGE_SIZE else None)


def _first(arms: list[QuerySet[AuditEvent]], order: str, count: int) -> list[AuditEvent]:
    """The first `count` of all arms in `order`. Each arm has its own limit: with "action IN (…)" both databases read
    and sort every event of all these actions before the first row."""
    if len(arms) == 1:
        return list(arms[0].order_by(order)[:count])
    seqs = _union([arm.order_by(order).values("seq")[:count] for arm in arms])
    found = AuditEvent.objects.filter(seq__in=sorted(seqs, reverse=order.startswith("-"))[:count])
    return list(found.order_by(order))


def _any(arms: list[QuerySet[AuditEvent]]) -> bool:
    return bool(_first(arms, "seq", 1))


def _union(arms: list[QuerySet[Any, Any]]) -> list[int]:
    """Django refuses a LIMIT inside of a union on SQLite, which takes it in a sub-query."""
    parts: list[str] = []
    values: list[Any] = []
    for arm in arms:
        with suppress(EmptyResultSet):
            sql, given = arm.query.sql_with_params()
            parts.append(f"SELECT seq FROM ({sql}) part")  # noqa: S608  # the ORM's own SQL, with parameters
            values += given
    if not parts:
        return []
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), values)
        return [int(row[0]) for row in cursor.fetchall()]


def rows_after(
    seq: int, limit: int = CATCH_UP_LIMIT, filters: Filters | None = None, until: int | None = None
) -> list[AuditEvent]:
    """What a reader who has seen `seq` has missed up to `until`, oldest first, at most `limit`."""
    events = AuditEvent.objects.filter(seq__gt=seq)
    if until is not None:
        events = events.filter(seq__lte=until)
    return list((filters.apply(events) if filters else events).order_by("seq")[:limit])


def head_seq() -> int:
    return AuditHead.objects.filter(chain=CHAIN).values_list("seq", flat=True).first() or 0


def exchange(event: AuditEvent) -> list[AuditEvent]:
    """All events of the same call in order; of anything else the event alone."""
    if event.call_uid is None:
        return [event]
    return list(AuditEvent.objects.filter(call_uid=event.call_uid).order_by("seq"))


# --- words -------------------------------------------------------------------------------------------------------------
def event_row(event: AuditEvent) -> dict[str, Any]:
    """The row of a live list, and of the first page: plain JSON values, no detail and no payload."""
    return {
        "seq": event.seq,
        "at": event.at.isoformat(),
        "action": event.action,
        "word": action_word(event.action),
        "group": group_of(event.action),
        "subject": event.subject,
        "outcome": event.outcome,
        "outcome_word": outcome_word(event.outcome),
        "tone": tone(event.outcome),
        "server": str(event.server_uid) if event.server_uid else "",
        "server_name": event.server_name,
        "user": event.actor_name,
        "identity": event.identity_name,
        "call": str(event.call_uid) if event.call_uid else "",
        "url": reverse("audit:detail", args=[event.seq]),
    }


def action_word(action: str) -> str:
    return AuditAction(action).label if action in AuditAction.values else action


def outcome_word(outcome: str) -> str:
    return AuditOutcome(outcome).label if outcome in AuditOutcome.values else outcome


def tone(outcome: str) -> str:
    return _TONES.get(AuditOutcome(outcome), "") if outcome in AuditOutcome.values else ""

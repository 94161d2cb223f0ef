"""The connection timeline of a session: a numbered ring of KEPT lines, each written in the same commit as its change.

The caller has changed the session's row in the same transaction: that row lock keeps the numbers gap-free. Repeats
become one line with a count, so a server that fails for days does not push out everything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import F, Max
from django.utils import timezone

from sessions.connections.statements import NewestEntry, newest_lines
from sessions.enums import SessionCondition, SessionState
from sessions.mcp.core.refusals import without_words
from sessions.models import ConnectionEvent, McpSession

KEPT, TRIM_EVERY = 200, 20
#: how many of them a page shows
SHOWN = 50
DETAIL_CHARS = 3_000
#: transient states: their line is replaced by the line of the result
_PASSING = frozenset({SessionState.CONNECTING, SessionState.INITIALIZING, SessionState.DISCONNECTING})
_LIKENESS = ("state", "condition", "title", "epoch", "worker", "fault", "step", "detail")


@dataclass(frozen=True)
class TimelineEntry:
    """`detail` is already storable text."""

    state: str
    condition: str = SessionCondition.NONE
    title: str = ""
    attempt: int = 0
    epoch: int = 0
    worker: str = ""
    fault: str = ""
    step: str = ""
    detail: str = ""
    next_retry_at: datetime | None = None

    def fields(self) -> dict[str, Any]:
        return {**vars(self), "worker": self.worker[:200], "detail": self.detail[:DETAIL_CHARS]}


def append(session_id: int, entry: TimelineEntry) -> None:
    """A change made by the owner, or on behalf of a dead one."""
    fields = entry.fields()
    newest = newest_lines(session_id)
    if newest and newest[0].state in _PASSING and newest[0].epoch == entry.epoch:
        _settle(newest, fields)
    elif len(newest) > 2 and _alike(newest[1], fields) and _alike(newest[2], _likeness(newest[0])):
        rows = ConnectionEvent.objects.filter(pk=newest[0].pk)  # a flapping server: up and down, up and down
        _repeat(newest[2], {"attempt": newest[0].attempt, "next_retry_at": rows.get().next_retry_at})
        rows.delete()
        _repeat(newest[1], fields)
    else:
        _insert(session_id, newest, fields)


def begin(entries: Mapping[int, TimelineEntry]) -> None:
    """The first line of a new epoch, for each of many sessions. It never repeats an earlier line, since those have
    other epochs."""
    newest = ConnectionEvent.objects.filter(session_id__in=entries).order_by().values_list("session_id")
    numbers, now = dict(newest.annotate(Max("number"))), timezone.now()
    rows = [
        ConnectionEvent(session_id=key, number=numbers.get(key, 0) + 1, at=now, last_at=now, **entry.fields())
        for key, entry in entries.items()
    ]
    for row in ConnectionEvent.objects.bulk_create(rows):
        _trim(row.session_id, row.number)


def note(session_id: int, title: str, words: str) -> None:
    """A person's command: a separate line with the current state."""
    session = McpSession.objects.only("state", "condition", "epoch").get(pk=session_id)
    newest = newest_lines(session_id)
    entry = TimelineEntry(session.state, session.condition, title, epoch=session.epoch, detail=words)
    _insert(session_id, newest, entry.fields())


def _settle(newest: list[NewestEntry], fields: dict[str, Any]) -> None:
    """The current attempt has a result: its line becomes that result, or raises the count of an equal line before
    it."""
    attempt, *older = newest
    fields["attempt"] = fields["attempt"] or attempt.attempt
    if older and _alike(older[0], fields):
        ConnectionEvent.objects.filter(pk=attempt.pk).delete()
        _repeat(older[0], fields)
    else:
        now = timezone.now()
        ConnectionEvent.objects.filter(pk=attempt.pk).update(at=now, last_at=now, **fields)


def _insert(session_id: int, newest: list[NewestEntry], fields: dict[str, Any]) -> None:
    now, number = timezone.now(), newest[0].number + 1 if newest else 1
    ConnectionEvent.objects.create(session_id=session_id, number=number, at=now, last_at=now, **fields)
    _trim(session_id, number)


def _trim(session_id: int, number: int) -> None:
    if number % TRIM_EVERY == 0:
        ConnectionEvent.objects.filter(session_id=session_id, number__lte=number - KEPT).delete()


def _repeat(line: NewestEntry, fields: Mapping[str, Any]) -> None:
    newer = {"attempt": fields["attempt"], "next_retry_at": fields["next_retry_at"], "last_at": timezone.now()}
    ConnectionEvent.objects.filter(pk=line.pk).update(repeats=F("repeats") + 1, **newer)


def _likeness(line: NewestEntry) -> dict[str, Any]:
    return {name: getattr(line, name) for name in _LIKENESS}


def _alike(line: NewestEntry, fields: Mapping[str, Any]) -> bool:
    """The server's own words are not compared: they may contain a time or a number."""
    same = all(getattr(line, name) == fields[name] for name in _LIKENESS if name != "detail")
    return same and without_words(line.detail) == without_words(fields["detail"])


def lines(session: McpSession | None, count: int = SHOWN) -> list[ConnectionEvent]:
    """Newest first."""
    return [] if session is None else list(session.connection_events.all()[:count])

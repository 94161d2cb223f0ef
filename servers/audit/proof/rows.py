"""Checks of other rows against the log's events. Each app registers the checks for its own rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from servers.models import AuditEvent

#: allowed between a time in a row and the event of the same transaction, if the event does not name it: a commit may
#: wait, and a clock may be set
TOLERANCE = timedelta(seconds=30)


@dataclass(frozen=True)
class Finding:
    """`seq`: the event that the row contradicts; None for a row without an event. `statement`: the event of a signed
    statement, if one contradicts the log."""

    seq: int | None
    words: str
    statement: int | None = None


@dataclass(frozen=True)
class Removed:
    """What retention signed: rows of calls, and payloads, whose request is older may be missing; so may the events up
    to `cut_until`."""

    calls: datetime | None = None
    payloads: datetime | None = None
    cut_until: datetime | None = None


class RowCheck(Protocol):
    def of_events(self, events: Sequence[tuple[AuditEvent, dict[str, Any]]], removed: Removed) -> Finding | None:
        """For verified events in order, each with its body: the first that a row contradicts, or whose row is
        missing."""

    def unrecorded(self, removed: Callable[[], Removed], on_batch: Callable[[], None]) -> Iterator[Finding]:
        """Called after all events were verified: the rows that no event accounts for. `removed`: what is signed now."""

    def exported(self, events: Sequence[AuditEvent], last_seq: int) -> dict[UUID, dict[str, Any]]:
        """The rows that belong to these events, as an export has them, by uid of the call: as they were when the log
        ended with event `last_seq`."""


_checks: list[RowCheck] = []


def checks() -> list[RowCheck]:
    return list(_checks)


def register(check: RowCheck) -> None:
    _checks.append(check)

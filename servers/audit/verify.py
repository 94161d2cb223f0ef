"""Verifying the chain: every link against its body, its columns, the link before it, and the head."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from servers.audit.record import CHAIN, body_of
from servers.json.canonical import canonical, sha256
from servers.models import AuditEvent, AuditHead

_CHUNK = 200
#: events between two calls of `on_progress`: less work than the interpreter's switch interval, after which another thread
#: of the process would have its turn anyway
_REPORTED = 50
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class ChainVerdict:
    """`first_bad_seq` is where the chain does not hold any more; `reason` says it in words for a page."""

    ok: bool
    checked: int
    first_bad_seq: int | None = None
    reason: str = ""


class _Broken(Exception):
    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(reason)
        self.seq = seq


@dataclass
class _Walk:
    """Where a verification stands: the next number and the hash that its link must name."""

    seq: int
    prev: str
    checked: int = 0

    def step(self, event: AuditEvent) -> None:
        if not isinstance(event.seq, int):
            raise _Broken(self.seq, f"The entry in place of event {self.seq} has no number.")
        if event.seq != self.seq:
            raise _missing(self.seq, event.seq)
        _check_link(event, self.prev)
        self.seq, self.prev, self.checked = event.seq + 1, event.hash, self.checked + 1


def verify(
    start: int = 1, end: int | None = None, on_progress: OnProgress = lambda checked, total: None
) -> ChainVerdict:
    """Check the links from `start` to `end`, both included; without `end` to the head, which is checked too.

    `on_progress(checked, total)` is called outside of any transaction; what it raises ends the verification. `total` is as
    the log was at the beginning.
    """
    total = _count(start, end)
    try:
        walk = _Walk(start, _hash_before(start))
    except _Broken as broken:
        return ChainVerdict(False, 0, broken.seq, str(broken))
    try:
        for event in _events(start, end):
            walk.step(event)
            if not walk.checked % _REPORTED:
                on_progress(walk.checked, max(total, walk.checked))
        if end is None:
            _reach_head(walk)
        elif walk.seq <= end:
            raise _missing(walk.seq, None)
    except _Broken as broken:
        return ChainVerdict(False, walk.checked, broken.seq, str(broken))
    return ChainVerdict(True, walk.checked)


def _count(start: int, end: int | None) -> int:
    """How many links there should be, for the progress alone: a damaged log may say anything."""
    last = AuditHead.objects.filter(chain=CHAIN).values_list("seq", flat=True).first() if end is None else end
    return max(0, last - start + 1) if isinstance(last, int) else 0


# --- one link ----------------------------------------------------------------------------------------------------------
def _check_link(event: AuditEvent, prev: str) -> None:
    if not isinstance(event.body, str):
        raise _Broken(event.seq, f"The body of event {event.seq} cannot be read.")
    if sha256(event.body) != event.hash:
        raise _Broken(event.seq, f"Event {event.seq} does not match its recorded hash.")
    try:
        body = json.loads(event.body)
        details, digests = body["details"], body["digests"]
        context = None if body["v"] == 1 else body["context"]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise _Broken(event.seq, f"The body of event {event.seq} cannot be read.") from exc
    try:
        rebuilt = canonical(body_of(_columns(event), prev, details, digests, context))
    except (ValueError, TypeError, AttributeError) as exc:  # a NULL, or a value of another type
        raise _unreadable(event.seq) from exc
    if body.get("prev") != prev:
        raise _Broken(event.seq, f"Event {event.seq} does not follow the previous event.")
    if rebuilt != event.body:
        raise _Broken(event.seq, f"The columns of event {event.seq} differ from the body that was hashed.")


def _columns(event: AuditEvent) -> dict[str, Any]:
    return {field.attname: getattr(event, field.attname) for field in AuditEvent._meta.concrete_fields}


# --- the ends ------------------------------------------------------------------------------------------------------------
def _hash_before(start: int) -> str:
    """The hash of the link before `start`; nothing stands before the first."""
    if start <= 1:
        return ""
    found = AuditEvent.objects.filter(seq=start - 1).values_list("hash", flat=True).first()
    if found is None:
        raise _missing(start - 1, None)
    return found


def _reach_head(walk: _Walk) -> None:
    """Follow what was appended while we walked, until the head says that nothing is left."""
    while True:
        head = AuditHead.objects.filter(chain=CHAIN).first()
        head_seq, head_hash = (head.seq, head.hash) if head else (0, "")
        before = walk.seq
        if not isinstance(head_seq, int):
            raise _Broken(walk.seq, "The recorded end of the chain cannot be read.")
        if head_seq < walk.seq - 1:
            raise _Broken(head_seq + 1, f"Event {head_seq + 1} is beyond the recorded end of the chain.")
        if head_seq == walk.seq - 1:
            if head_hash != walk.prev:
                raise _Broken(head_seq, f"Event {head_seq} is not the recorded end of the chain.")
            return
        for event in _events(walk.seq, head_seq):
            walk.step(event)
        if walk.seq == before:
            raise _missing(walk.seq, None)


def _events(start: int, end: int | None) -> Iterator[AuditEvent]:
    """In pages by number, so that a chain of any length takes no memory. From the first on, also what stands before it."""
    floor: int | None = None if start <= 1 else start - 1
    while page := _read(floor, end):
        yield from page
        floor = page[-1].seq


def _read(floor: int | None, end: int | None) -> list[AuditEvent]:
    try:
        return list(_page(floor, end))
    except Exception:  # whatever the driver or a field raises for a value that it cannot convert
        return list(_up_to_unreadable(floor, end))


def _up_to_unreadable(floor: int | None, end: int | None) -> Iterator[AuditEvent]:
    """One by one, to name the event that cannot be read; those before it are verified first."""
    with connection.cursor() as cursor:  # raises when it is the database that is away
        cursor.execute(*_page(floor, end).values("seq").query.sql_with_params())
        numbers = [row[0] for row in cursor.fetchall()]
    for place, number in enumerate(numbers):
        try:
            yield AuditEvent.objects.get(seq=number)
        except Exception as exc:  # as above
            if place:
                return
            raise _unreadable(number) from exc


def _page(floor: int | None, end: int | None) -> QuerySet[AuditEvent]:
    rows = AuditEvent.objects.order_by("seq")
    rows = rows if floor is None else rows.filter(seq__gt=floor)
    rows = rows if end is None else rows.filter(seq__lte=end)
    return rows[:_CHUNK]


def _unreadable(seq: int) -> _Broken:
    return _Broken(seq, f"The columns of event {seq} cannot be read.")


def _missing(seq: int, found: int | None) -> _Broken:
    if found is not None and found < seq:
        return _Broken(found, f"Event {found} is not part of the chain.")
    return _Broken(seq, f"Event {seq} is missing.")

"""Verifying the log: every link against its body, its columns and the link before it, and the head; for the whole log also
the signed statements, the stored payloads and the rows of calls (docs/audit-proof.md).
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Min, QuerySet

from servers.audit.proof import checkpoints, triggers
from servers.audit.proof.key import KeyMissing
from servers.audit.proof.whole import Whole
from servers.audit.record import CHAIN, body_of
from servers.audit.verdict import Broken, ChainVerdict, OnProgress
from servers.json.canonical import canonical, sha256
from servers.models import AuditEvent, AuditHead

__all__ = ["ChainVerdict", "columns_fit", "verify"]

IsKnown = Callable[[Broken], bool]
_CHUNK = 200
#: events between two calls of `on_progress`: less work than the interpreter's switch interval, after which another thread
#: of the process would have its turn anyway
_REPORTED = 50
#: while the retention removes what it has signed
_AGAIN_SECONDS = 0.2
_TRIGGERS = "The database does not prevent changes to audit events: its triggers are missing. Run the management command migrate."


class _Overtaken(Exception):
    """A cut removed events that were still to be verified."""


@dataclass
class _Walk:
    """The progress of a verification: the next number, and the hash that its link must name (None: any). `first`: the
    first damage; `intact`: how many events before it are valid."""

    seq: int
    prev: str | None
    is_known: IsKnown
    whole: Whole | None
    checked: int = 0
    first: Broken | None = None
    intact: int = 0

    def step(self, event: AuditEvent) -> dict[str, Any]:
        """Returns the event's body."""
        if not isinstance(event.seq, int):
            raise Broken(self.seq, f"The entry in place of event {self.seq} has no number.")
        if event.seq != self.seq:
            raise _missing(self.seq, event.seq)
        body = _check_link(event, self.prev)
        self.seq, self.prev, self.checked = event.seq + 1, event.hash, self.checked + 1
        return body

    def meet(self, broken: Broken) -> None:
        """Raises it, unless it is known: then the verification continues after it."""
        if self.whole is not None and self.whole.overtaken(broken):
            raise _Overtaken
        if self.first is None:
            self.first = broken
            self.intact = max(0, self.checked - (0 if broken.seq is None else max(0, self.seq - broken.seq)))
        if not self.is_known(broken):
            raise broken

    def pass_by(self, broken: Broken) -> int | None:
        """Skip an invalid link. Returns the number of the event after which to continue reading, None if none is
        left."""
        if not isinstance(broken.seq, int):
            raise broken
        if broken.seq < self.seq:  # not part of the chain
            return broken.seq
        if broken.seq > self.seq:  # cannot be read, and those before it are not there
            self.meet(_missing(self.seq, None))
        if not AuditEvent.objects.filter(seq=broken.seq).exists():
            found = AuditEvent.objects.filter(seq__gt=broken.seq).aggregate(first=Min("seq"))["first"]
            if not isinstance(found, int):
                return None
            self.seq, self.prev = found, None
            return found - 1
        self.seq, self.prev = broken.seq + 1, None
        return broken.seq


def verify(
    start: int = 1,
    end: int | None = None,
    on_progress: OnProgress = lambda checked, total: None,
    is_known: IsKnown = lambda broken: False,
) -> ChainVerdict:
    """Check the links from `start` to `end`, both included; without `end` to the head, which is checked too. Without both
    the whole log is checked.

    `on_progress(checked, total)` is called outside any transaction; an exception from it ends the verification. `total`
    is that of the log at the beginning. `is_known`: whether damage was acknowledged. The log then still counts as
    broken, but the events after it are checked too, except the link of the next event to a damaged one.
    """
    while (verdict := _verdict(start, end, on_progress, is_known)) is None:
        time.sleep(_AGAIN_SECONDS)
    return verdict


def _verdict(start: int, end: int | None, on_progress: OnProgress, is_known: IsKnown) -> ChainVerdict | None:
    """None if a cut overtook it."""
    # How many links there should be, for the progress only: a damaged log may claim anything.
    last = AuditHead.objects.filter(chain=CHAIN).values_list("seq", flat=True).first() if end is None else end
    total = max(0, last - start + 1) if isinstance(last, int) else 0
    walk = _Walk(start, "", is_known, None)
    whole: Whole | None = None
    unknown: Broken | None = None

    def report() -> None:
        on_progress(walk.checked, max(total, walk.checked))

    try:
        walk.whole = whole = Whole.of_this_log() if start <= 1 and end is None else None
        if whole is None:
            walk.prev = _hash_before(start)
        else:
            walk.seq, walk.prev = whole.beginning(walk.meet)
        _check_pages(walk, start, end, whole, report)
        if end is None:
            _reach_head(walk, whole, report)
        elif walk.seq <= end:
            walk.meet(_missing(walk.seq, None))
        if whole is not None:
            whole.finish(walk.meet, report)
    except _Overtaken:
        return None
    except Broken as broken:
        if walk.first is None:
            walk.first = broken
        unknown = broken
    if walk.first is not None:
        return ChainVerdict(False, walk.intact, walk.first.seq, str(walk.first), unknown=unknown)
    if whole is None:
        return ChainVerdict(True, walk.checked)
    warning = "" if triggers.complete(connection) else _TRIGGERS
    return ChainVerdict(True, walk.checked, signed_seq=whole.signed_seq, warning=warning)


def _check_pages(walk: _Walk, start: int, end: int | None, whole: Whole | None, report: Callable[[], None]) -> None:
    floor: int | None = None if start <= 1 else start - 1
    while True:
        try:
            for page in _pages(floor, end):
                _check_page(walk, page, whole, report)
            return
        except Broken as broken:
            walk.meet(broken)
            if (floor := walk.pass_by(broken)) is None:
                return


def _check_page(walk: _Walk, page: list[AuditEvent], whole: Whole | None, report: Callable[[], None]) -> None:
    """Check the links first, then what belongs to the valid ones: the first bad event counts."""
    good, broken = [], None
    try:
        for event in page:
            good.append((event, walk.step(event)))
            if not walk.checked % _REPORTED:
                report()
    except Broken as exc:
        broken = exc
    while whole is not None and good:
        try:
            whole.check(good)
        except Broken as exc:
            if whole.renew():
                continue
            walk.meet(exc)
            good = [(event, body) for event, body in good if exc.seq is not None and event.seq > exc.seq]
        else:
            break
    if broken is not None:
        raise broken


# --- one link ----------------------------------------------------------------------------------------------------------
def _check_link(event: AuditEvent, prev: str | None) -> dict[str, Any]:
    if not isinstance(event.body, str):
        raise Broken(event.seq, f"The body of event {event.seq} cannot be read.")
    if sha256(event.body) != event.hash:
        raise Broken(event.seq, f"Event {event.seq} does not match its recorded hash.")
    try:
        body = json.loads(event.body)
        fits = columns_fit(event, body)
        if not all(isinstance(digest, str) for digest in body["digests"].values()) or not isinstance(
            body["details"], dict
        ):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise Broken(event.seq, f"The body of event {event.seq} cannot be read.") from exc
    if prev is not None and body["prev"] != prev:
        raise Broken(event.seq, f"Event {event.seq} does not follow the previous event.")
    if not fits:
        raise Broken(event.seq, f"The columns of event {event.seq} differ from the body that was hashed.")
    return dict(body)


def columns_fit(event: AuditEvent, body: dict[str, Any]) -> bool:
    """Whether the columns match the body. Raises KeyError and TypeError if the body lacks something."""
    prev, details, digests = body["prev"], body["details"], body["digests"]
    context = None if body["v"] == 1 else body["context"]
    columns = {field.attname: getattr(event, field.attname) for field in AuditEvent._meta.concrete_fields}
    if columns["server_uid"] is None and columns["server_name"] != "":
        return False  # the body has neither
    if context is None and columns["way"] is not None:
        return False  # a body of version 1 has none
    try:
        return canonical(body_of(columns, prev, details, digests, context)) == event.body
    except (ValueError, TypeError, AttributeError) as exc:  # a NULL, or a value of another type
        raise _unreadable(event.seq) from exc


# --- the ends ------------------------------------------------------------------------------------------------------------
def _hash_before(start: int) -> str:
    """The hash of the link before `start`, which a cut may have removed; there is nothing before the first."""
    if start <= 1:
        return ""
    found = AuditEvent.objects.filter(seq=start - 1).values_list("hash", flat=True).first()
    if found is not None:
        return found
    try:
        cut = checkpoints.newest_cut()
    except (KeyMissing, OSError) as exc:
        raise Broken(None, f"The signed checkpoints cannot be checked. {exc}") from exc
    if cut is None or cut.seq != start - 1:
        raise _missing(start - 1, None)
    return cut.hash


def _reach_head(walk: _Walk, whole: Whole | None, report: Callable[[], None]) -> None:
    """Follow what was appended while we walked, until the head says that nothing is left."""
    while True:
        head = AuditHead.objects.filter(chain=CHAIN).first()
        head_seq, head_hash = (head.seq, head.hash) if head else (0, "")
        before = walk.seq
        if not isinstance(head_seq, int):
            return walk.meet(Broken(walk.seq, "The recorded end of the chain cannot be read."))
        if head_seq < walk.seq - 1:
            return walk.meet(Broken(head_seq + 1, f"Event {head_seq + 1} is beyond the recorded end of the chain."))
        if head_seq == walk.seq - 1:
            if walk.prev is not None and head_hash != walk.prev:
                walk.meet(Broken(head_seq, f"Event {head_seq} is not the recorded end of the chain."))
            return
        _check_pages(walk, walk.seq, head_seq, whole, report)
        if walk.seq == before:
            return walk.meet(_missing(walk.seq, None))


def _pages(floor: int | None, end: int | None) -> Iterator[list[AuditEvent]]:
    """By number, so that a chain of any length takes no memory. Without a `floor`, also events before the first."""
    while True:
        try:
            page = list(_page(floor, end))
        except Exception:  # whatever the driver or a field raises for a value that it cannot convert
            page = list(_up_to_unreadable(floor, end))
        if not page:
            return
        yield page
        floor = page[-1].seq


def _up_to_unreadable(floor: int | None, end: int | None) -> Iterator[AuditEvent]:
    """One by one, to name the event that cannot be read; those before it are verified first."""
    with connection.cursor() as cursor:  # raises if the database itself is unavailable
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


def _unreadable(seq: int) -> Broken:
    return Broken(seq, f"The columns of event {seq} cannot be read.")


def _missing(seq: int, found: int | None) -> Broken:
    if found is not None and found < seq:
        return Broken(found, f"Event {found} is not part of the chain.")
    return Broken(seq, f"Event {seq} is missing.")

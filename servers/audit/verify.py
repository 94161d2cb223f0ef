"""Verifying the chain: every link against its body, its columns, the link before it, and the head."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from servers.audit.canonical import canonical, sha256
from servers.audit.record import CHAIN, body_of
from servers.models import AuditEvent, AuditHead

_CHUNK = 1_000


@dataclass(frozen=True)
class Verdict:
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
        if event.seq != self.seq:
            raise _missing(self.seq, event.seq)
        _check_link(event, self.prev)
        self.seq, self.prev, self.checked = event.seq + 1, event.hash, self.checked + 1


def verify(start: int = 1, end: int | None = None) -> Verdict:
    """Check the links from `start` to `end`, both included; without `end` to the head, which is checked too."""
    try:
        walk = _Walk(start, _hash_before(start))
    except _Broken as broken:
        return Verdict(False, 0, broken.seq, str(broken))
    try:
        for event in _events(start, end):
            walk.step(event)
        if end is None:
            _reach_head(walk)
        elif walk.seq <= end:
            raise _missing(walk.seq, None)
    except _Broken as broken:
        return Verdict(False, walk.checked, broken.seq, str(broken))
    return Verdict(True, walk.checked)


def verify_last(count: int = 1_000) -> Verdict:
    """The newest `count` links and the head."""
    newest = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    return verify(start=max(1, newest - count + 1))


# --- one link ----------------------------------------------------------------------------------------------------------
def _check_link(event: AuditEvent, prev: str) -> None:
    if sha256(event.body) != event.hash:
        raise _Broken(event.seq, f"Event {event.seq} does not have the hash that was recorded for it.")
    try:
        body = json.loads(event.body)
        rebuilt = canonical(body_of(_columns(event), prev, body["details"], body["digests"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise _Broken(event.seq, f"The body of event {event.seq} cannot be read.") from exc
    if body.get("prev") != prev:
        raise _Broken(event.seq, f"Event {event.seq} does not follow the event before it.")
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
        if head_seq < walk.seq - 1:
            raise _Broken(head_seq + 1, f"Event {head_seq + 1} stands behind the recorded end of the chain.")
        if head_seq == walk.seq - 1:
            if head_hash != walk.prev:
                raise _Broken(head_seq, f"Event {head_seq} is not the one that the chain ends with.")
            return
        for event in _events(walk.seq, head_seq):
            walk.step(event)
        if walk.seq == before:
            raise _missing(walk.seq, None)


def _events(start: int, end: int | None) -> Iterator[AuditEvent]:
    """In pages by number, so that a chain of any length takes no memory. From the first on, also what stands before it."""
    floor: int | None = None if start <= 1 else start - 1
    while page := list(_page(floor, end)):
        yield from page
        floor = page[-1].seq


def _page(floor: int | None, end: int | None) -> QuerySet[AuditEvent]:
    rows = AuditEvent.objects.order_by("seq")
    rows = rows if floor is None else rows.filter(seq__gt=floor)
    rows = rows if end is None else rows.filter(seq__lte=end)
    return rows[:_CHUNK]


def _missing(seq: int, found: int | None) -> _Broken:
    if found is not None and found < seq:
        return _Broken(found, f"Event {found} stands where no event belongs.")
    return _Broken(seq, f"Event {seq} is missing.")

"""What the limits require to be removed now: the oldest entries of the ledger, by age, then by size."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Sum
from django.utils import timezone

from sessions.enums import StoredKind
from sessions.models import StorageHour
from sessions.retention.limits import Limit


@dataclass(frozen=True)
class Removal:
    """Everything of one kind from the key `first` up to `last`. `before`: no removed row is newer."""

    kind: StoredKind
    first: int
    last: int
    before: datetime
    rows: int
    bytes: int


def plan(wanted: Mapping[StoredKind, Limit], now: datetime | None = None) -> list[Removal]:
    found = [_removal(kind, limit, now or timezone.now()) for kind, limit in wanted.items()]
    return [removal for removal in found if removal is not None]


def _removal(kind: StoredKind, limit: Limit, now: datetime) -> Removal | None:
    if limit.days is None and limit.bytes is None:
        return None
    oldest = None if limit.days is None else now - timedelta(days=limit.days)
    entries = StorageHour.objects.filter(kind=kind, emptied=False).order_by("first")
    total = entries.order_by().aggregate(Sum("bytes"))["bytes__sum"] or 0
    over = 0 if limit.bytes is None else max(0, total - limit.bytes)
    gone: list[StorageHour] = []
    size = 0
    for entry in entries.iterator(chunk_size=500):
        # Added while the clock was ahead: it would protect everything after it until then. Events are only cut from the
        # beginning of the log.
        if not gone and entry.until > now and kind != StoredKind.EVENTS:
            continue
        too_old = oldest is not None and entry.until < oldest
        if not too_old and size >= over:
            break
        gone.append(entry)
        size += entry.bytes
    if not gone:
        return None
    rows, before = sum(entry.rows for entry in gone), max(entry.until for entry in gone)
    return Removal(kind, gone[0].first, gone[-1].last, before, rows, size)

"""The amount stored of each kind, by the hour in which it was added.

Each row is read once, in key order, when it is old enough that no transaction with a lower key is still open.
So a page and a plan cost the same for a thousand rows as for ten million.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet, Sum
from django.utils import timezone

from servers.advisory_locks import AdvisoryLock, in_transaction
from servers.audit.batches import in_turn
from servers.sql import database
from sessions.enums import StoredKind
from sessions.models import StorageHour
from sessions.retention.kinds import Stored, stored_kinds

#: a newer row may have a neighbor with a lower key that is not committed yet
SETTLED = timedelta(minutes=2)
CHUNK = 2_000
#: rows with higher keys may be older by this much; even older ones were added after the clock was set back
_DISORDER = timedelta(hours=1)
#: retention removes whole entries, so an hour with many or large rows has several
MOST_ROWS, MOST_BYTES = 20_000, 32 * 1024 * 1024
OnProgress = Callable[[int], None]


@dataclass(frozen=True)
class Total:
    rows: int = 0
    bytes: int = 0
    #: when the oldest and the newest were added; None without rows
    oldest: datetime | None = None
    newest: datetime | None = None


def measure_all(now: datetime | None = None, on_progress: OnProgress = lambda rows: None) -> int:
    """Measure all kinds. Returns the number of rows that were read."""
    return sum(measure(stored, now, on_progress) for stored in stored_kinds().values())


def measure(stored: Stored, now: datetime | None = None, on_progress: OnProgress = lambda rows: None) -> int:
    """Enter the rows that were added since the last time. Safe to repeat after an interruption."""
    if stored.trimmed_elsewhere:
        in_turn(partial(_forget, stored.kind))
    until = (now or timezone.now()) - SETTLED
    read = 0
    while True:
        after = _last(stored.kind)
        chunk = list(stored.sized().filter(pk__gt=after, **{f"{stored.age}__lt": until})[:CHUNK])
        if not chunk:
            return read
        if in_turn(partial(_enter, stored.kind, chunk, after)):
            read += len(chunk)
        on_progress(read)


def _last(kind: StoredKind) -> int:
    """The highest key that was entered."""
    return StorageHour.objects.filter(kind=kind).order_by("-first").values_list("last", flat=True).first() or 0


def _enter(kind: StoredKind, rows: Sequence[tuple[int, datetime, int]], after: int) -> bool:
    """False: another job (runs and dry runs may overlap) entered or removed entries since `rows` were read."""
    _one_at_a_time()
    if _last(kind) != after:
        return False
    for entry in _entered(kind, rows):
        entry.save()
    return True


def _forget(kind: StoredKind) -> None:
    _one_at_a_time()
    StorageHour.objects.filter(kind=kind).delete()


def _one_at_a_time() -> None:
    in_transaction(database(), AdvisoryLock.STORAGE_HOURS)


def _entered(kind: StoredKind, rows: Iterable[tuple[int, datetime, int]]) -> list[StorageHour]:
    """The entries that change."""
    entry, changed = StorageHour.objects.filter(kind=kind).order_by("first").last(), []
    for key, at, size in rows:
        hour = at.replace(minute=0, second=0, microsecond=0)
        set_back = entry is not None and hour < entry.hour - _DISORDER
        if entry is None or hour > entry.hour or set_back or _full(entry):
            if entry is not None:
                changed.append(entry)
            entry = StorageHour(kind=kind, hour=hour, first=key, last=key, until=at, rows=0, bytes=0)
        entry.last, entry.until = key, max(entry.until, at)
        entry.rows, entry.bytes = entry.rows + 1, entry.bytes + size
    return [*changed, entry] if entry is not None else changed


def _full(entry: StorageHour) -> bool:
    """Whether new rows need another entry. No limit checks an emptied entry again."""
    return entry.emptied or entry.rows >= MOST_ROWS or entry.bytes >= MOST_BYTES


def spans(kind: StoredKind, first: int, last: int) -> list[tuple[int, int]]:
    """The keys from `first` up to `last`, without those of emptied entries, which may span a month in between."""
    entries = StorageHour.objects.filter(kind=kind, first__gte=first, last__lte=last, emptied=True)
    found = []
    for begin, end in entries.order_by("first").values_list("first", "last"):
        found.append((first, begin - 1))
        first = end + 1
    return [(begin, end) for begin, end in [*found, (first, last)] if begin <= end]


def recount(stored: Stored, first: int, last: int, *, content: Q | None = None) -> None:
    """Update the entries after a removal from the key `first` up to `last`. `content`: which rows still have contents;
    an entry without any counts as emptied."""
    entries = StorageHour.objects.filter(kind=stored.kind, first__gte=first, last__lte=last, emptied=False)
    _recount(stored, entries, content)


def recount_before(stored: Stored, before: datetime) -> None:
    """Update the entries after rows were removed along with those of another kind."""
    _recount(stored, StorageHour.objects.filter(kind=stored.kind, hour__lte=before))


def _recount(stored: Stored, entries: QuerySet[StorageHour], content: Q | None = None) -> None:
    for entry in entries:
        current: StorageHour | None = entry
        while current is not None and not _recounted(stored, current, content):
            current = StorageHour.objects.filter(pk=entry.pk).first()


def _recounted(stored: Stored, entry: StorageHour, content: Q | None) -> bool:
    """False: another job added rows to the entry in the meantime, or removed it."""
    inside = stored.sized().filter(pk__gte=entry.first, pk__lte=entry.last).order_by()
    left = inside.aggregate(rows=Count("pk"), bytes=Sum("taken"))
    emptied = entry.emptied or (content is not None and not inside.filter(content).exists())
    fields = {"rows": left["rows"], "bytes": left["bytes"], "emptied": emptied}
    return in_turn(partial(_change, StorageHour.objects.filter(pk=entry.pk, last=entry.last), fields))


def _change(row: QuerySet[StorageHour], fields: dict[str, Any]) -> bool:
    _one_at_a_time()
    if fields["rows"]:
        return bool(row.update(**fields))
    return bool(row.delete()[0])


def total(kind: StoredKind) -> Total:
    found = StorageHour.objects.filter(kind=kind).order_by()
    sums = found.aggregate(Sum("rows"), Sum("bytes"), Min("hour"), Max("until"))
    return Total(sums["rows__sum"] or 0, sums["bytes__sum"] or 0, sums["hour__min"], sums["until__max"])


def grown(kind: StoredKind, since: datetime) -> int:
    """Bytes that were added since then and are still stored."""
    return StorageHour.objects.filter(kind=kind, hour__gte=since).aggregate(Sum("bytes"))["bytes__sum"] or 0


def measured() -> bool:
    return StorageHour.objects.exists()

"""How much is stored of each kind, by the hour in which it came.

Each row is read once, in the order of its key, when it is old enough that no transaction with a lower key is still open.
So a page and a plan cost the same at a thousand and at ten million rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Count, Max, Min, QuerySet, Sum
from django.utils import timezone

from servers.audit.spare import in_turn
from sessions.enums import StoredKind
from sessions.models import StorageHour
from sessions.retention.kinds import Stored, stored_kinds

#: a younger row may have a neighbour with a lower key that is not committed yet
SETTLED = timedelta(minutes=2)
CHUNK = 2_000
#: the retention removes whole entries, so an hour with many or large rows has several
MOST_ROWS, MOST_BYTES = 20_000, 32 * 1024 * 1024
OnProgress = Callable[[int], None]


@dataclass(frozen=True)
class Total:
    rows: int = 0
    bytes: int = 0
    #: when the oldest and the newest came; None without rows
    oldest: datetime | None = None
    newest: datetime | None = None


def measure_all(now: datetime | None = None, on_progress: OnProgress = lambda rows: None) -> int:
    """Returns the number of rows that were read."""
    return sum(measure(stored, now, on_progress) for stored in stored_kinds().values())


def measure(stored: Stored, now: datetime | None = None, on_progress: OnProgress = lambda rows: None) -> int:
    """Enter the rows that came since the last time. Safe to repeat after an interruption."""
    if stored.trimmed_elsewhere:
        in_turn(StorageHour.objects.filter(kind=stored.kind).delete)
    until = (now or timezone.now()) - SETTLED
    entries = StorageHour.objects.filter(kind=stored.kind)
    last = entries.aggregate(Max("last"))["last__max"] or 0
    read = 0
    while True:
        chunk = list(stored.sized().filter(pk__gt=last, **{f"{stored.age}__lt": until})[:CHUNK])
        if not chunk:
            return read
        in_turn(partial(_save, _entered(stored.kind, chunk)))
        last, read = chunk[-1][0], read + len(chunk)
        on_progress(read)


def _entered(kind: StoredKind, rows: Iterable[tuple[int, datetime, int]]) -> list[StorageHour]:
    """The entries that change. Nobody else enters rows of this kind meanwhile."""
    entry, changed = StorageHour.objects.filter(kind=kind).order_by("first").last(), []
    for key, at, size in rows:
        hour = at.replace(minute=0, second=0, microsecond=0)
        if entry is None or hour > entry.hour or entry.rows >= MOST_ROWS or entry.bytes >= MOST_BYTES:
            if entry is not None:
                changed.append(entry)
            entry = StorageHour(kind=kind, hour=hour, first=key, last=key, until=at, rows=0, bytes=0)
        entry.last, entry.until = key, max(entry.until, at)
        entry.rows, entry.bytes = entry.rows + 1, entry.bytes + size
    return [*changed, entry] if entry is not None else changed


def _save(entries: list[StorageHour]) -> None:
    for entry in entries:
        entry.save()


def recount(stored: Stored, first: int, last: int, *, emptied: bool = False) -> None:
    """After a removal from the key `first` up to `last`: what is left in the entries. Emptied ones before them stay as they
    are: there may be a month of them."""
    entries = StorageHour.objects.filter(kind=stored.kind, first__gte=first, last__lte=last)
    _recount(stored, entries, emptied=emptied)


def recount_before(stored: Stored, before: datetime) -> None:
    """After rows went with those of another kind."""
    _recount(stored, StorageHour.objects.filter(kind=stored.kind, hour__lte=before))


def _recount(stored: Stored, entries: QuerySet[StorageHour], *, emptied: bool = False) -> None:
    for entry in entries:
        inside = stored.sized().filter(pk__gte=entry.first, pk__lte=entry.last).order_by()
        left = inside.aggregate(rows=Count("pk"), bytes=Sum("taken"))
        row = StorageHour.objects.filter(pk=entry.pk)
        if left["rows"]:
            fields = {"rows": left["rows"], "bytes": left["bytes"], "emptied": emptied or entry.emptied}
            in_turn(partial(row.update, **fields))
        else:
            in_turn(row.delete)


def total(kind: StoredKind) -> Total:
    found = StorageHour.objects.filter(kind=kind).order_by()
    sums = found.aggregate(Sum("rows"), Sum("bytes"), Min("hour"), Max("until"))
    return Total(sums["rows__sum"] or 0, sums["bytes__sum"] or 0, sums["hour__min"], sums["until__max"])


def grown(kind: StoredKind, since: datetime) -> int:
    """Bytes that came since then and are still there."""
    return StorageHour.objects.filter(kind=kind, hour__gte=since).aggregate(Sum("bytes"))["bytes__sum"] or 0


def measured() -> bool:
    return StorageHour.objects.exists()

"""The data of the *Storage* page: how much each kind takes, how fast it grows, and when a limit or the disk is
reached."""

import shutil
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import connection
from django.utils import timezone

from servers.enums import JobKind, JobState
from servers.jobs.board import JobRow
from servers.jobs.lifecycle import open_job
from servers.models import BackgroundJob
from sessions.enums import StoredKind
from sessions.retention import ledger
from sessions.retention.kinds import stored_kinds
from sessions.retention.ledger import Total
from sessions.retention.limits import Limit, limits

#: growth is measured over this time, or since the first row if that is shorter
_WINDOW = timedelta(days=7)
_LEAST = timedelta(hours=6)
#: a limit may be exceeded by this much growth, with one run per hour
_BETWEEN_RUNS = timedelta(hours=2)
#: other kinds always keep some rows
_REMOVED_IN_ORDER = (StoredKind.CALLS, StoredKind.EVENTS)
_FARTHEST_DAYS = 3650
KINDS = (JobKind.RETENTION, JobKind.RETENTION_DRY_RUN)


@dataclass(frozen=True)
class KindRow:
    """`share`: percent of all kinds. `full_in`: days until the size limit removes the oldest rows; 0: it already does,
    None: never, or unknown."""

    kind: StoredKind
    total: Total
    limit: Limit
    a_day: int | None
    share: int
    full_in: int | None

    @property
    def over(self) -> bool:
        """Over its limit by more than grows between two runs: something keeps the rows, or the limit is new."""
        if self.kind not in _REMOVED_IN_ORDER:
            return False
        grown = (self.a_day or 0) * (_BETWEEN_RUNS / timedelta(days=1))
        if self.limit.bytes is not None and self.total.bytes > 1.1 * self.limit.bytes + grown:
            return True
        if self.limit.days is None or self.total.oldest is None:
            return False
        return self.total.oldest < timezone.now() - timedelta(days=self.limit.days + 1)

    @property
    def settled(self) -> bool:
        """Whether it has stopped growing: as much is removed as is added."""
        if self.over:
            return False
        if self.full_in == 0:
            return True
        if self.limit.days is None or self.total.oldest is None:
            return False
        return self.total.oldest <= timezone.now() - timedelta(days=self.limit.days - 1)


@dataclass(frozen=True)
class Disk:
    """For SQLite: file, log, unused space in the file, and free disk space. For PostgreSQL, `free` is unknown."""

    engine: str
    database: int
    reusable: int | None
    free: int | None
    size: int | None

    @property
    def used_percent(self) -> int | None:
        return None if self.free is None or not self.size else round(100 * (self.size - self.free) / self.size)


@dataclass(frozen=True)
class Storage:
    """`full_in`: days until the disk is full at this growth; None: it is not filling up, or nothing is known."""

    rows: list[KindRow]
    disk: Disk
    measured: bool
    a_day: int | None
    full_in: int | None

    @property
    def full_on(self) -> datetime | None:
        return None if self.full_in is None else timezone.now() + timedelta(days=self.full_in)

    @property
    def soon(self) -> bool:
        return self.full_in is not None and self.full_in <= 14


def storage(now: datetime | None = None) -> Storage:
    now = now or timezone.now()
    wanted = limits()
    totals = {kind: ledger.total(kind) for kind in stored_kinds()}
    everything = sum(total.bytes for total in totals.values())
    rows = [_row(kind, total, wanted[kind], everything, now) for kind, total in totals.items()]
    disk = disk_now()
    known = [row.a_day for row in rows if row.a_day is not None]
    growing = sum(row.a_day or 0 for row in rows if not row.settled)
    free = None if disk.free is None else disk.free + (disk.reusable or 0)
    full_in = _days(free, growing)
    return Storage(rows, disk, ledger.measured(), sum(known) if known else None, full_in)


def _row(kind: StoredKind, total: Total, limit: Limit, everything: int, now: datetime) -> KindRow:
    a_day = _a_day(kind, total, now)
    left = None if limit.bytes is None else max(0, limit.bytes - total.bytes)
    nearly = limit.bytes is not None and total.bytes >= 0.98 * limit.bytes
    full_in = 0 if nearly else _days(left, a_day)
    return KindRow(kind, total, limit, a_day, round(100 * total.bytes / everything) if everything else 0, full_in)


def _a_day(kind: StoredKind, total: Total, now: datetime) -> int | None:
    if total.oldest is None:
        return None
    since = max(total.oldest, now - _WINDOW)
    span = max(now - since, _LEAST)
    return round(ledger.grown(kind, since) / (span / timedelta(days=1)))


def _days(left: int | None, a_day: int | None) -> int | None:
    if left is None or not a_day or a_day <= 0:
        return None
    return days if (days := left // a_day) <= _FARTHEST_DAYS else None


def disk_now() -> Disk:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_database_size(current_database())")
            return Disk("PostgreSQL", int(cursor.fetchone()[0]), None, None, None)
    path = Path(str(connection.settings_dict["NAME"]))
    size = sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists())
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT freelist_count FROM pragma_freelist_count), (SELECT page_size FROM pragma_page_size)"
        )
        pages, page_bytes = cursor.fetchone()
    usage = shutil.disk_usage(path.parent) if path.parent.exists() else None
    return Disk(
        "SQLite", size, int(pages) * int(page_bytes), usage.free if usage else None, usage.total if usage else None
    )


# --- jobs --------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RetentionJobs:
    """The running or waiting job, the newest finished run, and the newest dry run with what it would remove."""

    open: JobRow | None
    last: JobRow | None
    dry_run: JobRow | None
    would_remove: list[dict[str, Any]]


def jobs() -> RetentionJobs:
    waiting = next((job for kind in KINDS if (job := open_job(kind)) is not None), None)
    dry_run = _ended(JobKind.RETENTION_DRY_RUN)
    last = _ended(JobKind.RETENTION)
    stale = dry_run is not None and last is not None and last.job.pk > dry_run.job.pk
    return RetentionJobs(
        JobRow(waiting) if waiting else None, last, None if stale else dry_run, [] if stale else _would_remove(dry_run)
    )


def _ended(kind: JobKind) -> JobRow | None:
    job = BackgroundJob.objects.filter(kind=kind).exclude(finished_at=None).first()
    return None if job is None else JobRow(job)


def _would_remove(dry_run: JobRow | None) -> list[dict[str, Any]]:
    if dry_run is None or dry_run.job.state != JobState.SUCCEEDED:
        return []
    found = dict(dry_run.job.result.get("would_remove", {}))
    return [
        {"label": StoredKind(kind).label, **values, "before": datetime.fromisoformat(values["before"])}
        for kind, values in found.items()
    ]

"""What pages show of exports and schedules."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max

from servers import access
from servers.enums import ExportFormat, JobKind, JobState
from servers.exporting import files, schedules, selection
from servers.forwarding import board as forwarding
from servers.jobs import board as jobs
from servers.jobs.board import JobRow
from servers.kit.words import Look
from servers.models import Export, ExportSchedule

#: exports per list
SHOWN = 50
_READY = Look("Ready", "ok", "circle-check")
_DONE = Look("Done", "ok", "circle-check")
_EXPIRED = Look("Expired", "", "clock-x")
_FAILED = Look("Failed", "bad", "circle-x")


@dataclass(frozen=True)
class ExportRow:
    export: Export

    @property
    def job(self) -> JobRow | None:
        """While it waits or runs."""
        job = self.export.job
        return JobRow(job) if job is not None and job.open and self.export.finished_at is None else None

    @property
    def running(self) -> bool:
        return self.job is not None and self.job.job.state == JobState.RUNNING

    @property
    def look(self) -> Look:
        if self.job is not None:
            return self.job.look
        if self.export.failed or self.export.finished_at is None:
            return _FAILED
        if self.export.schedule_id is not None or self.export.place:
            return _DONE
        return _READY if self.export.expires_at is not None else _EXPIRED

    @property
    def detail(self) -> str:
        if self.job is not None:
            return self.job.job.detail
        if self.export.finished_at is None:
            return self.export.job.detail if self.export.job is not None else "Its job was lost. Request it again."
        return self.export.detail

    @property
    def downloadable(self) -> bool:
        return self.job is None and files.here(self.export)

    @property
    def elsewhere(self) -> str:
        """The machine that has the file, if it is not this one."""
        export = self.export
        lies = self.job is None and export.expires_at is not None and not files.here(export)
        return export.host if lies else ""

    @property
    def format(self) -> str:
        return ExportFormat(self.export.format).label

    @property
    def span(self) -> str:
        """The range of a schedule's export."""
        last = f" to {self.export.last_seq:,}" if self.export.last_seq else ""
        return f"From event {selection.begins_at(self.export):,}{last}"


@dataclass(frozen=True)
class ScheduleRow:
    """`failing_since`: when its exports began to fail, if none has succeeded since. Until one does, it keeps retention
    from removing the events that it has not exported, unless it is paused."""

    schedule: ExportSchedule
    last: ExportRow | None
    failing_since: datetime | None = None

    @property
    def where(self) -> str:
        return schedules.where(self.schedule)

    @property
    def cursor(self) -> int:
        return self.schedule.cursor

    @property
    def next_at(self) -> datetime | None:
        return None if self.schedule.paused_at else self.schedule.next_at


def rows(user: access.User) -> list[ExportRow]:
    """The user's own exports, newest first."""
    return [ExportRow(export) for export in Export.objects.filter(owner=user).select_related("job")[:SHOWN]]


def schedule_rows() -> list[ScheduleRow]:
    found = list(ExportSchedule.objects.all())
    newest = Export.objects.filter(schedule__in=found).order_by().values("schedule").annotate(newest=Max("pk"))
    last = {
        export.schedule_id: ExportRow(export)
        for export in Export.objects.filter(pk__in=[row["newest"] for row in newest]).select_related("job")
    }
    return [ScheduleRow(schedule, last.get(schedule.pk), failing_since(schedule)) for schedule in found]


def failing_since(schedule: ExportSchedule) -> datetime | None:
    """None for a paused schedule, which blocks nothing."""
    if schedule.paused_at is not None:
        return None
    since = None
    for row in runs(schedule):
        if row.job is None and row.look is not _FAILED:
            break
        if row.job is None:
            since = row.export.created_at
    return since


def failing() -> list[ScheduleRow]:
    return [row for row in schedule_rows() if row.failing_since is not None]


def runs(schedule: ExportSchedule) -> list[ExportRow]:
    return [ExportRow(export) for export in schedule.exports.select_related("job")[:SHOWN]]


def mark() -> str:
    """A value that differs after any change on the page of exports and forwarding."""
    counted = Export.objects.order_by().aggregate(Count("pk"), Max("pk"), Count("finished_at"), Count("expires_at"))
    own = ".".join("" if value is None else str(value) for value in counted.values())
    return f"{jobs.mark(JobKind.EXPORT)}.{own}.{forwarding.mark()}"

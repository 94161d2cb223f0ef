"""What pages show about background jobs."""

from dataclasses import dataclass

from django.db.models import Max, Sum
from django.db.models.functions import Coalesce

from servers.crypto import sealed_fields
from servers.enums import JobKind, JobState
from servers.jobs.lifecycle import RETRIES, open_job
from servers.kit.words import Look, format_all
from servers.models import BackgroundJob

_LOOKS = {
    JobState.QUEUED: Look("Queued", "", "hourglass"),
    JobState.RUNNING: Look("Running", "run", "loader-2"),
    JobState.INTERRUPTED: Look("Interrupted", "warn", "refresh-dot"),
    JobState.SUCCEEDED: Look("Succeeded", "ok", "circle-check"),
    JobState.FAILED: Look("Failed", "bad", "circle-x"),
}


@dataclass(frozen=True)
class JobRow:
    job: BackgroundJob

    @property
    def look(self) -> Look:
        return _LOOKS[JobState(self.job.state)]

    @property
    def milliseconds(self) -> float | None:
        """The duration of the newest attempt."""
        if self.job.started_at is None or self.job.finished_at is None:
            return None
        return max(0.0, (self.job.finished_at - self.job.started_at).total_seconds() * 1000)

    @property
    def percent(self) -> int | None:
        return min(100, 100 * self.job.done // self.job.total) if self.job.total else None

    @property
    def progress(self) -> str:
        return f"{self.job.done:,} of {self.job.total:,}" if self.job.total else "Starting"

    @property
    def retry(self) -> str:
        return f"Retry {self.job.attempts} of {RETRIES}"

    @property
    def verified(self) -> str:
        return f"{format_all(int(self.job.result.get('checked', 0)), 'event')} verified"


@dataclass(frozen=True)
class Verification:
    """The verification that waits or runs, and the last one that ended."""

    open: JobRow | None
    last: JobRow | None
    mark: str


def rows() -> list[JobRow]:
    return [JobRow(job) for job in BackgroundJob.objects.all()]


def verification() -> Verification:
    """Read in this order: a row that moves in between is recognised by its mark."""
    seen = mark(JobKind.VERIFICATION)
    waiting = open_job(JobKind.VERIFICATION)
    last = BackgroundJob.objects.filter(kind=JobKind.VERIFICATION).exclude(finished_at=None).first()
    return Verification(JobRow(waiting) if waiting else None, JobRow(last) if last else None, seen)


def mark(kind: JobKind | None = None) -> str:
    """A value that differs after any change: a page that shows the same one is up to date."""
    found = BackgroundJob.objects.filter(kind=kind) if kind else BackgroundJob.objects.all()
    sums = found.order_by().aggregate(newest=Coalesce(Max("pk"), 0), versions=Coalesce(Sum("version"), 0))
    return f"{sums['newest']}.{sums['versions']}"


def sealed_values() -> int:
    return sum(place.rows().count() for place in sealed_fields())

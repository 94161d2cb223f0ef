"""The life of a job's row. Each step is one conditional UPDATE: of several that try, one takes it.

    queued → running → succeeded or failed
               ↓ ↑ (by way of queued)
            interrupted: the worker died, or the database did not answer

An attempt is identified by its number. A worker that was silent for so long that its job was given to another one no
longer changes the row: it notices at its next heartbeat, and stops.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from servers.audit.acts import audited
from servers.audit.record import SYSTEM, Actor, Event
from servers.enums import AuditAction, AuditOutcome, JobKind, JobState
from servers.models import BackgroundJob
from servers.signals import job_changed

RETRY_AFTER_SECONDS = (60, 300, 900)
RETRIES = len(RETRY_AFTER_SECONDS)
#: of those that people requested; of the schedule's, the newest of each kind
KEPT = 100
#: action and subject of the event at its end
_END = {
    JobKind.VERIFICATION: (AuditAction.AUDIT_VERIFY, "audit log"),
    JobKind.ROTATION: (AuditAction.KEYS_ROTATE, "key ring"),
    JobKind.EXPORT: (AuditAction.EXPORT_END, "audit log"),
}


class Lost(Exception):
    """Another attempt has the job, or it is over."""


@dataclass(frozen=True)
class JobOutcome:
    """`detail` is one sentence for a page, `result` the data for agents; neither contains a secret."""

    ok: bool
    detail: str
    result: dict[str, Any] = field(default_factory=dict)


def stale_seconds() -> float:
    """Far longer than a batch takes, also when the database is busy."""
    return float(6 * settings.STALE_SECONDS)


def open_job(kind: JobKind) -> BackgroundJob | None:
    return BackgroundJob.objects.filter(kind=kind, finished_at=None).first()


# --- by the worker that runs it --------------------------------------------------------------------------------------
def claim(uid: str) -> BackgroundJob | None:
    """The job, now running in a new attempt; None if another worker was first, or it has ended."""
    queued = BackgroundJob.objects.filter(uid=uid, state=JobState.QUEUED)
    begun = {"started_at": Now(), "heartbeat_at": Now(), "done": 0, "total": None, "detail": ""}
    if not _step(queued, state=JobState.RUNNING, attempts=F("attempts") + 1, **begun):
        return None
    return BackgroundJob.objects.get(uid=uid)


def heartbeat(job: BackgroundJob, **progress: Any) -> None:
    """With `done`, `total` or `result`. Raises Lost."""
    if not _step(_ours(job), heartbeat_at=Now(), **progress):
        raise Lost


def finish(job: BackgroundJob, outcome: JobOutcome, **still: Any) -> None:
    """`still`: what must hold of the row. Raises Lost."""
    with audited(_requester(job)) as trail:
        ended = {"result": outcome.result, "detail": outcome.detail[:300], "finished_at": Now()}
        running = _ours(job).filter(**still)
        if not _step(running, state=JobState.SUCCEEDED if outcome.ok else JobState.FAILED, **ended):
            raise Lost
        if (action := _END.get(JobKind(job.kind))) and (
            job.requested_name or not outcome.ok or job.kind == JobKind.EXPORT
        ):
            word = AuditOutcome.OK if outcome.ok else AuditOutcome.FAILED
            details = {"job": str(job.uid), **outcome.result}
            trail.add(Event(action[0], word, trail.actor, subject=action[1], details=details))
    _prune(job)


def give_back(job: BackgroundJob) -> None:
    """The worker is stopping: another one starts the job again."""
    _step(_ours(job), state=JobState.QUEUED, attempts=F("attempts") - 1, detail="")


def interrupt(job: BackgroundJob, why: str, **still: Any) -> None:
    """A retry follows, or after RETRIES of them the end. `still`: what must hold of the row."""
    if job.attempts > RETRIES:
        try:
            finish(job, JobOutcome(False, f"{why} Gave up after {job.attempts} attempts.", job.result), **still)
        except Lost:
            return
    else:
        wait = timedelta(seconds=RETRY_AFTER_SECONDS[job.attempts - 1])
        _step(_ours(job).filter(**still), state=JobState.INTERRUPTED, retry_at=timezone.now() + wait, detail=why)


# --- by those who look after them --------------------------------------------------------------------------------------
def interrupt_stale() -> None:
    """A heartbeat in the future is from before the clock was set back. A live worker has written a newer one since."""
    stale = timedelta(seconds=stale_seconds())
    silent = Q(heartbeat_at__lt=Now() - stale) | Q(heartbeat_at__gt=Now() + stale)
    for job in BackgroundJob.objects.filter(silent, state=JobState.RUNNING):
        interrupt(job, "The worker stopped responding.", version=job.version)


def requeue(job: BackgroundJob) -> bool:
    interrupted = BackgroundJob.objects.filter(pk=job.pk, state=JobState.INTERRUPTED)
    return _step(interrupted, state=JobState.QUEUED, retry_at=None, detail="")


def note(job: BackgroundJob, detail: str) -> None:
    """Set the detail of a queued job."""
    _step(BackgroundJob.objects.filter(pk=job.pk, state=JobState.QUEUED), detail=detail)


def announce() -> None:
    """Have pages refresh after the commit."""
    transaction.on_commit(partial(job_changed.send_robust, sender=BackgroundJob), robust=True)


def _step(rows: "QuerySet[BackgroundJob]", **changes: Any) -> bool:
    if rows.update(version=F("version") + 1, **changes) != 1:
        return False
    announce()
    return True


def _ours(job: BackgroundJob) -> "QuerySet[BackgroundJob]":
    return BackgroundJob.objects.filter(pk=job.pk, state=JobState.RUNNING, attempts=job.attempts)


def _requester(job: BackgroundJob) -> Actor:
    return Actor(job.requested_by_id, job.requested_name) if job.requested_name else SYSTEM


def _prune(job: BackgroundJob) -> None:
    over = BackgroundJob.objects.exclude(finished_at=None)
    if job.requested_name:
        gone = over.exclude(requested_name="").values_list("pk", flat=True)[KEPT:]
        BackgroundJob.objects.filter(pk__in=list(gone)).delete()
    else:
        over.filter(kind=job.kind, requested_name="", pk__lt=job.pk).delete()

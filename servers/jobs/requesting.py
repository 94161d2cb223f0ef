"""Requests of jobs, by people and by the schedule, and the messages to the workers.

A message is a hint: it contains the job's uid, may be lost and may arrive twice. Lost messages are published again by
`recover`, which housekeeping calls.
"""

from datetime import timedelta
from typing import Any

import structlog
from celery import current_app
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from servers import access, permissions
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction, JobKind, JobState
from servers.jobs import lifecycle
from servers.jobs.lifecycle import open_job
from servers.models import BackgroundJob

RUN_TASK = "servers.run_job"
BROKER_AWAY = "The message broker is unreachable. The job starts once the broker is back."
#: the schedule asks once an hour whether a day is over; with a whole day it would be an hour later each time
DAY = timedelta(hours=23, minutes=30)
#: of the kinds that a person requests here; exports have their own (servers/exporting/requesting.py)
PERMISSIONS = {
    JobKind.VERIFICATION: "verify_chain",
    JobKind.ROTATION: "administer",
    JobKind.RETENTION: "administer",
    JobKind.RETENTION_DRY_RUN: "administer",
}
log = structlog.get_logger(__name__)


class Busy(Exception):
    """A job of this kind has not ended yet. The message is for the page."""

    def __init__(self, kind: JobKind) -> None:
        job = open_job(kind)
        state = JobState(job.state).label.lower() if job else "running"
        who = f", started by {job.requested_name or 'the schedule'}" if job else ""
        super().__init__(f"{kind.label} is already {state}{who}.")


def request(kind: JobKind, user: access.User, actor: Actor) -> BackgroundJob:
    """A person's request. An interrupted job is queued again at once. Raises Denied, and Busy while one waits or
    runs."""
    permissions.require(user, actor, PERMISSIONS[kind], subject=kind.label)
    lifecycle.interrupt_stale()
    waiting = open_job(kind)
    if waiting is not None and waiting.state != JobState.INTERRUPTED:
        if waiting.state == JobState.QUEUED:
            publish(waiting)
        raise Busy(kind)
    try:
        with audited(actor) as trail:
            job = waiting or create(kind, requested_by=user, requested_name=actor.name)
            if waiting is not None and not lifecycle.requeue(waiting):
                raise Busy(kind)
            trail.note(AuditAction.JOB_REQUEST, None, kind.label, {"job": str(job.uid)})
    except IntegrityError:  # another request was faster
        raise Busy(kind) from None
    publish(job)
    return job


def request_scheduled(kind: JobKind, every: timedelta | None = None) -> BackgroundJob | None:
    """None while one of this kind is not over, or when the newest of the schedule is younger than `every`. One of the future
    was created before the clock was set back."""
    scheduled, now = BackgroundJob.objects.filter(kind=kind, requested_name=""), timezone.now()
    if every is not None and scheduled.filter(created_at__gt=now - every, created_at__lte=now).exists():
        return None
    try:
        with transaction.atomic():
            return create(kind)
    except IntegrityError:
        return None


def create(kind: JobKind, **fields: Any) -> BackgroundJob:
    """A queued job. In the caller's transaction; `publish` it afterwards."""
    job = BackgroundJob.objects.create(kind=kind, **fields)
    lifecycle.announce()
    return job


def publish(job: BackgroundJob) -> bool:
    """Notify a worker. Returns False if the broker does not respond; the row then says so."""
    try:
        current_app.send_task(RUN_TASK, args=[str(job.uid)], retry=False, ignore_result=True)
    except (OperationalError, RedisError, OSError) as problem:
        log.warning("jobs.not_published", job=str(job.uid), problem=type(problem).__name__)
        lifecycle.note(job, BROKER_AWAY)
        return False
    if job.detail:
        lifecycle.note(job, "")
    return True


def recover() -> None:
    """Look after jobs whose worker died, and publish again whatever waits."""
    lifecycle.interrupt_stale()
    now = timezone.now()
    # a moment later than the longest pause was set before the clock was set back
    due = Q(retry_at__lte=now) | Q(retry_at__gt=now + timedelta(seconds=lifecycle.RETRY_AFTER_SECONDS[-1]))
    for job in BackgroundJob.objects.filter(due, state=JobState.INTERRUPTED):
        lifecycle.requeue(job)
    for job in BackgroundJob.objects.filter(state=JobState.QUEUED):
        publish(job)

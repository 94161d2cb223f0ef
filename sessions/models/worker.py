import uuid
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models

from sessions.models.clock import about_database_now


def stale_before() -> datetime:
    """The time before which a worker's last heartbeat means that it is dead."""
    return about_database_now() - timedelta(seconds=settings.STALE_SECONDS)


class WorkerQuerySet(models.QuerySet["Worker"]):
    def living(self) -> "WorkerQuerySet":
        """Workers whose last heartbeat is recent and whose process no supervisor saw end."""
        return self.filter(ended_at=None, heartbeat_at__gt=stale_before())


class Worker(models.Model):
    """One incarnation of a session host. A restart creates a new row, so it never gets wake-ups for its predecessor."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    node = models.CharField(max_length=200)  # Celery's node name, the same across restarts
    machine = models.CharField(max_length=64)  # sessions.housekeeping.machine: shows whether `pid` can be checked here
    pid = models.PositiveIntegerField()
    process_started = models.CharField(max_length=40, blank=True)  # start ticks of the pid: detects a reused pid
    labels = models.JSONField(default=list)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(db_index=True)  # by the database's clock
    ended_at = models.DateTimeField(null=True)  # when a supervisor saw the process end; cleanup is still pending
    draining = models.BooleanField(default=False)
    session_count = models.PositiveIntegerField(default=0)
    isolation = models.CharField(
        max_length=40, blank=True
    )  # how stdio children are contained: a value of sessions.mcp.transports.stdio.Isolation

    #: how stdio servers are confined: a value of sessions.mcp.transports.stdio.Tier, or "unconfined"
    confinement = models.CharField(max_length=20, blank=True)
    confinement_reason = models.CharField(max_length=1000, blank=True)  # why there is no better one

    objects = WorkerQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.node} {self.uid}"

    @property
    def alive(self) -> bool:
        return self.ended_at is None and self.heartbeat_at > stale_before()

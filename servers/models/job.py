import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from servers.enums import JobKind, JobState


class BackgroundJob(models.Model):
    """Work that no page waits for. This row is the request; a Celery message only makes a worker look at it."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveIntegerField(default=1)  # row version: pages compare it
    kind = models.CharField(max_length=20, choices=JobKind)
    state = models.CharField(max_length=12, choices=JobState, default=JobState.QUEUED)
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(null=True)  # null while unknown
    result = models.JSONField(default=dict)  # short, and never a secret
    detail = models.CharField(max_length=300, blank=True)  # one sentence for the page
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    requested_name = models.CharField(max_length=150, blank=True)  # outlives the account; empty: the schedule
    attempts = models.PositiveSmallIntegerField(default=0)  # also the fencing number of the running attempt
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)  # of the newest attempt
    heartbeat_at = models.DateTimeField(null=True)  # by the database's clock
    retry_at = models.DateTimeField(null=True)  # of an interrupted job
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view",)
        constraints = [
            # Two concurrent requests are two INSERTs: the database accepts one. Exports may run in parallel.
            models.UniqueConstraint(
                fields=["kind"],
                condition=Q(state__in=["queued", "running", "interrupted"]) & ~Q(kind="export"),
                name="one_open_job_a_kind",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.uid}"

    @property
    def open(self) -> bool:
        return self.finished_at is None

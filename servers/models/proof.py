import uuid

from django.db import models

from servers.enums import AlarmKind, StatementKind


class Checkpoint(models.Model):
    """A signed statement about the audit log: docs/audit-proof.md. Only `note` counts; the rest repeats it for lookups.

    The triggers on the events table read it: a row of kind `cut` permits deleting the events up to its `seq`.
    """

    kind = models.CharField(max_length=10, choices=StatementKind)
    seq = models.BigIntegerField()  # the last event that it covers, which is the size of the log
    hash = models.CharField(max_length=64)
    at = models.DateTimeField()
    key_id = models.CharField(max_length=8)
    note = models.TextField()

    class Meta:
        ordering = ["-id"]
        default_permissions = ()
        indexes = [models.Index(fields=["kind", "seq"], name="checkpoints_by_kind")]

    def __str__(self) -> str:
        return f"{self.kind} {self.seq}"


class Witness(models.Model):
    """How far the checkpoints were delivered to a location outside the database. The locations are configured in the
    settings."""

    name = models.CharField(max_length=300, unique=True)  # as the page shows it, without secrets
    delivered = models.BigIntegerField(default=0)  # primary key of the newest checkpoint that it has
    delivered_seq = models.BigIntegerField(default=0)
    delivered_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)  # since the last delivery
    problem = models.CharField(max_length=500, blank=True)
    next_attempt_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class AuditAlarm(models.Model):
    """An inconsistency in the audit log. It is shown on every administrator's pages until one acknowledges it."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=12, choices=AlarmKind)
    seq = models.BigIntegerField(null=True)  # the first event that does not fit
    words = models.CharField(max_length=1000)
    found_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    reason = models.CharField(max_length=1000, blank=True)

    class Meta:
        ordering = ["-id"]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.seq}"

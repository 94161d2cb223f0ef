from django.db import models

from sessions.enums import StoredKind


class RetentionLimit(models.Model):
    """The limits on one kind of data, by age and by size. Without a row, or with null, everything is kept."""

    kind = models.CharField(primary_key=True, max_length=10, choices=StoredKind)
    days = models.PositiveIntegerField(null=True)
    bytes = models.PositiveBigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.kind}: {self.days} days, {self.bytes} bytes"


class StorageHour(models.Model):
    """The rows of one kind that were added in one hour: how many are left, and their size. All of them count as old as
    `until`, the time of the newest one. Written by retention, so that it knows sizes without reading all rows again."""

    kind = models.CharField(max_length=10, choices=StoredKind)
    hour = models.DateTimeField()
    first = models.BigIntegerField()  # lowest and highest primary key of its rows
    last = models.BigIntegerField()
    until = models.DateTimeField()
    rows = models.PositiveBigIntegerField()
    bytes = models.PositiveBigIntegerField()
    emptied = models.BooleanField(default=False)  # the contents of its payloads were removed, the rows remain

    class Meta:
        ordering = ["kind", "first"]
        constraints = [models.UniqueConstraint(fields=["kind", "first"], name="one_storage_hour")]

    def __str__(self) -> str:
        return f"{self.kind} {self.hour}: {self.rows} rows"

import uuid

from django.conf import settings
from django.db import models

from servers.enums import ExportFormat, ExportTarget, Interval
from servers.models.job import BackgroundJob


class ExportSchedule(models.Model):
    """Exports at fixed intervals to a directory or an S3-compatible store, each with the events since the previous
    one."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=80, unique=True)
    format = models.CharField(max_length=5, choices=ExportFormat)
    payloads = models.BooleanField(default=False)
    interval = models.CharField(max_length=10, choices=Interval)
    target = models.CharField(max_length=10, choices=ExportTarget)
    directory = models.CharField(max_length=1000, blank=True)
    endpoint = models.CharField(max_length=2000, blank=True)
    region = models.CharField(max_length=60, blank=True)
    bucket = models.CharField(max_length=255, blank=True)
    prefix = models.CharField(max_length=500, blank=True)
    access_key = models.CharField(max_length=200, blank=True)
    sealed = models.BinaryField(null=True)  # the secret key
    key_id = models.CharField(max_length=40, blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    owner_name = models.CharField(max_length=150)  # kept when the account is deleted
    created_at = models.DateTimeField(auto_now_add=True)
    paused_at = models.DateTimeField(null=True)
    next_at = models.DateTimeField()
    cursor = models.BigIntegerField(default=0)  # number of the last exported event

    class Meta:
        ordering = ["name"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class Export(models.Model):
    """One file, made by its background job. It belongs to the person who requested it, or to a schedule."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    job = models.OneToOneField(BackgroundJob, null=True, on_delete=models.SET_NULL, related_name="export")
    schedule = models.ForeignKey(ExportSchedule, null=True, on_delete=models.SET_NULL, related_name="exports")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")
    owner_name = models.CharField(max_length=150)
    format = models.CharField(max_length=5, choices=ExportFormat)
    payloads = models.BooleanField(default=False)
    query = models.TextField(blank=True)  # in the explorer's language; empty: all events
    after_seq = models.BigIntegerField(default=0)  # for a schedule: only events after this one
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)
    failed = models.BooleanField(default=False)
    detail = models.CharField(max_length=300, blank=True)
    last_seq = models.BigIntegerField(default=0)  # the end of the log when the export began
    events = models.BigIntegerField(default=0)
    size = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=64, blank=True)  # SHA-256 of the file
    place = models.CharField(max_length=2000, blank=True)  # for a schedule: where the file was stored
    host = models.CharField(max_length=255, blank=True)  # the machine that has the file
    expires_at = models.DateTimeField(null=True)  # null: there is no file to download

    class Meta:
        ordering = ["-pk"]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.format} {self.uid}"

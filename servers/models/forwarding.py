import uuid

from django.db import models

from servers.enums import SinkKind


class Sink(models.Model):
    """A receiver of all audit events. Everything up to `cursor` has been delivered to it, some of it perhaps twice."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=10, choices=SinkKind)
    address = models.CharField(max_length=2000)  # a URL; for syslog host:port
    lines = models.BooleanField(default=False)  # for an HTTP endpoint: NDJSON instead of a JSON array
    ca = models.TextField(blank=True)  # PEM; empty: the public certificate authorities
    certificate = models.TextField(blank=True)  # PEM, the client certificate
    header = models.CharField(max_length=100, blank=True)  # sent with each request, with the sealed value
    sealed_value = models.BinaryField(null=True)
    value_key_id = models.CharField(max_length=40, blank=True)
    sealed_signing = models.BinaryField(null=True)  # signs messages to HTTP endpoints
    signing_key_id = models.CharField(max_length=40, blank=True)
    sealed_private_key = models.BinaryField(null=True)  # PEM, for the certificate
    private_key_key_id = models.CharField(max_length=40, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_name = models.CharField(max_length=150)
    paused_at = models.DateTimeField(null=True)

    cursor = models.BigIntegerField(default=0)  # number of the last event delivered
    cursor_hash = models.CharField(max_length=64, blank=True)  # its hash; empty before the first delivery
    delivered_at = models.DateTimeField(null=True)
    delivered = models.BigIntegerField(default=0)  # events, in total
    skipped = models.BigIntegerField(default=0)  # events that retention removed before they were delivered
    rejected = models.BigIntegerField(default=0)  # records that the receiver reports as accepted and dropped

    fence = models.BigIntegerField(default=0)  # fencing number of the worker that forwards now
    lease_until = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)  # since the last delivery
    failing_since = models.DateTimeField(null=True)
    next_attempt_at = models.DateTimeField(null=True)
    stalled_at = models.DateTimeField(null=True)  # when the audit log recorded that it had stalled
    last_detail = models.CharField(max_length=500, blank=True)

    test_requested_at = models.DateTimeField(null=True)
    test_ended_at = models.DateTimeField(null=True)
    test_ok = models.BooleanField(default=False)
    test_detail = models.CharField(max_length=500, blank=True)

    class Meta:
        ordering = ["name"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name

import uuid

from django.conf import settings
from django.db import models

from servers.models import Identity, Payload, Server
from sessions.enums import DeliveryState, SubscriptionState, VersionCause


class Subscription(models.Model):
    """A lasting subscription to one resource of a server under one identity."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveBigIntegerField(default=1)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="subscriptions")
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="subscriptions")
    uri = models.TextField()  # opaque: we never open it
    title = models.CharField(max_length=300, blank=True)
    active = models.BooleanField(default=True)  # False: ended, but its history is kept
    state = models.CharField(max_length=10, choices=SubscriptionState, default=SubscriptionState.WAITING)
    state_since = models.DateTimeField()
    reason = models.TextField(blank=True)  # for a refusal or a lost stream, in the server's words if any
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_by_name = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    notify = models.BooleanField(default=True)  # show a message on the pages of users who may see it
    min_interval_seconds = models.PositiveIntegerField(default=5)  # between two reads
    keep_count = models.PositiveIntegerField(default=200)
    keep_days = models.PositiveIntegerField(default=90)
    keep_bytes = models.PositiveBigIntegerField(default=50 * 1024 * 1024)
    webhook_url = models.CharField(max_length=2000, blank=True)
    webhook_sealed = models.BinaryField(null=True)  # the signing secret
    webhook_key_id = models.CharField(max_length=40, blank=True)
    webhook_digests = models.BooleanField(default=False)  # whether the user who set its URL or secret may read contents

    event_count = models.PositiveBigIntegerField(default=0)  # all notifications, even those that shared one read
    newest = models.PositiveBigIntegerField(default=0)  # number of the newest version
    last_event_at = models.DateTimeField(null=True)
    last_read_at = models.DateTimeField(null=True)
    read_fault = models.CharField(max_length=40, blank=True)  # why the last read failed; "" if it succeeded
    read_detail = models.TextField(blank=True)
    changed_at = models.DateTimeField(null=True)  # when the newest version was read

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["server", "identity", "uri"], name="one_subscription_a_resource")
        ]

    def __str__(self) -> str:
        return self.uri[:80]


class ResourceVersion(models.Model):
    """Contents of a resource. `digest` is SHA-256 of their canonical JSON; equal contents make no new version. For
    erased contents it begins with KEYED or is empty."""

    #: precedes a digest that only this installation can compare: see sessions.subscriptions.versions.erased
    KEYED = "~"

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    cause = models.CharField(max_length=12, choices=VersionCause)
    events = models.PositiveIntegerField(default=1)  # notifications that this read covers
    digest = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField()  # bytes of the contents, decoded
    mime_type = models.CharField(max_length=200, blank=True)
    binary = models.BooleanField(default=False)
    contents = models.ForeignKey(Payload, on_delete=models.PROTECT, related_name="+")  # the JSON array `contents`

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["subscription", "number"], name="resource_version_once")]

    def __str__(self) -> str:
        return f"{self.number} {self.digest[:12]}"

    @property
    def contents_digest(self) -> str:
        """Empty once the contents are erased."""
        return "" if self.digest.startswith(self.KEYED) else self.digest


class SubscriptionGap(models.Model):
    """A period without notifications of changes from the server. Open while `ended_at` is null."""

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="gaps")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True)
    changed = models.BooleanField(null=True)  # whether the read after the gap found other contents; null until then

    class Meta:
        ordering = ["-began_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["subscription"], condition=models.Q(ended_at=None), name="one_open_gap_a_subscription"
            )
        ]

    def __str__(self) -> str:
        return f"{self.began_at} - {self.ended_at}"


class SubscriptionHour(models.Model):
    """The number of notifications in one hour, for the sparkline of the board."""

    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="hours")
    hour = models.DateTimeField()
    events = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subscription", "hour"], name="subscription_hour_once")]

    def __str__(self) -> str:
        return f"{self.hour} {self.events}"


class WebhookDelivery(models.Model):
    """One message to a subscription's webhook. A worker claims it with a conditional UPDATE of `next_attempt_at`."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="deliveries")
    number = models.PositiveBigIntegerField()  # the number of the version that the message announces
    state = models.CharField(max_length=10, choices=DeliveryState, default=DeliveryState.PENDING)
    attempts = models.PositiveSmallIntegerField(default=0)
    created_at = models.DateTimeField()
    next_attempt_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    last_status = models.PositiveSmallIntegerField(null=True)
    last_detail = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["state", "next_attempt_at"], name="deliveries_due")]

    def __str__(self) -> str:
        return f"{self.number} {self.state}"

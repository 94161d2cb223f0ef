import uuid

from django.db import models
from django.db.models import Q

from servers.enums import PayloadKind


class Payload(models.Model):
    """Arguments or a result, stored apart from the event that has their digest: erasing one breaks no chain.

    `digest` is SHA-256(salt + content). The content is in one of three columns: `text` up to INLINE_PAYLOAD_BYTES, `blob`
    (zlib) above, `sealed` where payloads are encrypted. Erasing empties all three and the salt, and sets `erased_at`.
    """

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=12, choices=PayloadKind)
    salt = models.BinaryField()
    digest = models.CharField(max_length=64, db_index=True)  # audit events refer to their payloads by it
    size = models.PositiveBigIntegerField()  # bytes of the JSON text
    text = models.TextField(blank=True)
    blob = models.BinaryField(null=True)
    sealed = models.BinaryField(null=True)
    key_id = models.CharField(max_length=40, blank=True)
    redacted = models.PositiveIntegerField(default=0)  # values that redaction masked before this was stored
    created_at = models.DateTimeField(auto_now_add=True)
    erased_at = models.DateTimeField(null=True)

    class Meta:
        permissions = [("erase_payload", "May erase arguments and results of calls")]
        indexes = [models.Index(fields=["key_id"], name="payloads_by_key", condition=Q(sealed__isnull=False))]

    def __str__(self) -> str:
        return f"{self.kind} {self.uid}"


class Unredacted(models.Model):
    """The original content of a redacted payload, encrypted. It is deleted once it has been sent to its server."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    payload = models.OneToOneField(Payload, on_delete=models.CASCADE, related_name="unredacted")
    sealed = models.BinaryField()
    key_id = models.CharField(max_length=40)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"of {self.payload_id}"


class PayloadReading(models.Model):
    """A person read a payload in this hour, and an event records it. Kept for the latest hours only."""

    user_id = models.BigIntegerField()
    payload_id = models.BigIntegerField()
    hour = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["payload_id", "user_id", "hour"], name="one_reading_event_an_hour")
        ]

    def __str__(self) -> str:
        return f"{self.payload_id} by {self.user_id}"

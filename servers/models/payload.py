import uuid

from django.db import models

from servers.enums import PayloadKind


class Payload(models.Model):
    """Arguments or a result, apart from the event that holds their digest: erasing one breaks no chain.

    `digest` is SHA-256(salt + content); up to INLINE_PAYLOAD_BYTES stand in `text`, larger ones in `blob` (zlib).
    Erasing empties text, blob and salt and sets `erased_at`.
    """

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=12, choices=PayloadKind)
    salt = models.BinaryField()
    digest = models.CharField(max_length=64, db_index=True)  # an audit event names its payloads by it
    size = models.PositiveBigIntegerField()  # bytes of the JSON text
    text = models.TextField(blank=True)
    blob = models.BinaryField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    erased_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.uid}"

import uuid

from django.db import models


class Instance(models.Model):
    """The single row about this installation: where its database was when a person last confirmed the location."""

    uid = models.UUIDField(default=uuid.uuid4, editable=False)
    place = models.JSONField(default=dict)  # servers.instance.place(); {} if unknown
    held_at = models.DateTimeField(null=True)  # since then no session is opened: the database was found elsewhere
    found = models.JSONField(default=dict)  # where it was found
    # whether agents may register themselves as OAuth clients (RFC 7591)
    oauth_registration = models.BooleanField(default=False)
    # whether clients may be described by a metadata document, which a worker reads
    oauth_documents = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"{self.uid}{' (held)' if self.held_at else ''}"

import uuid

from django.db import models
from django.db.models.functions import Now

from servers.enums import RedactedPart
from servers.models.server import Server


class PrivacySettings(models.Model):
    """The single row about what is stored of arguments, results and answers. Without it, the defaults apply."""

    seal_payloads = models.BooleanField(default=False)
    mask_by_schema = models.BooleanField(default=True)  # `format: password` and `writeOnly` in a tool's schemas
    mask_detected = models.BooleanField(default=True)  # well-known formats of tokens and keys

    def __str__(self) -> str:
        return "privacy settings"


class RedactionRule(models.Model):
    """Masks what `path` (JSONPath, RFC 9535) finds, before anything is stored."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    path = models.CharField(max_length=500)
    part = models.CharField(max_length=10, choices=RedactedPart, default=RedactedPart.ALL)
    server = models.ForeignKey(Server, null=True, on_delete=models.CASCADE, related_name="+")  # null: all servers
    target = models.CharField(max_length=300, blank=True)  # tool or prompt name, `*` allowed at either end; empty: all
    note = models.CharField(max_length=200, blank=True)
    enabled = models.BooleanField(default=True)
    created_by_name = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.path

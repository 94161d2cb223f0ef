from django.db import models

from servers.enums import DefinitionChange, DefinitionKind
from servers.models.identity import Identity
from servers.models.server import Server


class Definition(models.Model):
    """A tool, resource, template or prompt as the server last described it to one identity. `body` is the server's
    JSON, verbatim."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="definitions")
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="definitions")
    kind = models.CharField(max_length=20, choices=DefinitionKind)
    key = models.TextField()  # a tool's or prompt's name, a resource's URI, a template's URI template
    title = models.TextField(blank=True)  # for a resource or template without a title: its name
    description = models.TextField(blank=True)
    position = models.PositiveIntegerField()
    body = models.TextField()
    digest = models.CharField(max_length=64)  # SHA-256 of the canonical JSON (RFC 8785) of `body`
    # the version that agents may call while a breaking change awaits approval; empty: none is pending
    approved_digest = models.CharField(max_length=64, blank=True, default="", db_default="")
    first_seen_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["position", "id"]
        constraints = [models.UniqueConstraint(fields=["identity", "kind", "key"], name="definition_once_an_identity")]

    def __str__(self) -> str:
        return self.title or self.key


class DefinitionVersion(models.Model):
    definition = models.ForeignKey(Definition, on_delete=models.CASCADE, related_name="versions")
    digest = models.CharField(max_length=64)
    body = models.TextField()
    seen_at = models.DateTimeField()
    change = models.CharField(max_length=12, choices=DefinitionChange, default=DefinitionChange.FIRST)
    reasons = models.JSONField(default=list)  # what makes it breaking or compatible, one sentence each

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.definition_id}@{self.digest[:8]}"

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from servers.enums import BundleListing, DefinitionKind
from servers.models.server import Server


class Bundle(models.Model):
    """Several servers as one MCP server for agents. `version` rises with each change: the optimistic lock for
    concurrent edits. The slug is unique among bundles and servers together."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveIntegerField(default=1)
    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    instructions = models.TextField(blank=True)  # for the model, placed before those of the members
    listing = models.CharField(max_length=10, choices=BundleListing, default=BundleListing.ALL)
    pinned = models.JSONField(default=list)  # patterns of exposed tool names that search mode lists too
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True)  # it can be restored for a while

    class Meta:
        ordering = ["name", "id"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name


class BundleMember(models.Model):
    """A server in a bundle, under an alias. A retired row keeps the alias reserved for its server."""

    bundle = models.ForeignKey(Bundle, on_delete=models.CASCADE, related_name="members")
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="bundle_members")
    alias = models.CharField(max_length=12)
    position = models.PositiveIntegerField(default=0)
    # patterns of the server's own names or URIs; those that begin with ! exclude
    tools = models.JSONField(default=list)
    resources = models.JSONField(default=list)
    prompts = models.JSONField(default=list)
    overrides = models.JSONField(default=dict)  # tool -> description, hidden parameters: see servers.bundles.overrides
    retired_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["position", "id"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["bundle", "alias"], condition=Q(retired_at=None), name="bundle_alias_once"),
            models.UniqueConstraint(
                fields=["bundle", "server"], condition=Q(retired_at=None), name="bundle_server_once"
            ),
        ]

    def __str__(self) -> str:
        return self.alias


class ExposedName(models.Model):
    """The name under which a bundle offers a tool or a prompt. It never changes its meaning: a retired row keeps it
    reserved."""

    bundle = models.ForeignKey(Bundle, on_delete=models.CASCADE, related_name="names")
    kind = models.CharField(max_length=20, choices=DefinitionKind)
    exposed = models.CharField(max_length=64)
    skeleton = models.CharField(max_length=64)  # equal for names that people could confuse
    server_uid = models.UUIDField()
    original = models.TextField()
    digest = models.CharField(max_length=64)  # SHA-256 of `original`
    created_at = models.DateTimeField(default=timezone.now)
    retired_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["bundle", "kind", "skeleton"], name="exposed_name_once"),
            models.UniqueConstraint(
                fields=["bundle", "kind", "server_uid", "digest"],
                condition=Q(retired_at=None),
                name="exposed_target_once",
            ),
        ]

    def __str__(self) -> str:
        return self.exposed

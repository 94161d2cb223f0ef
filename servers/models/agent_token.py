import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from servers.models.server import Server


class AgentToken(models.Model):
    """Lets an agent act as a person at the endpoints for agents: a token that the person issued, or a grant to an OAuth
    client, which has its own short-lived tokens (OAuthToken). Secrets are stored only as digests."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    public_id = models.CharField(max_length=12, unique=True)  # the part of the token that may be shown
    digest = models.CharField(max_length=64)  # of a grant: of a secret that no one has
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="agent_tokens")
    name = models.CharField(max_length=120)
    client = models.ForeignKey(
        "servers.OAuthClient", null=True, on_delete=models.CASCADE, related_name="grants"
    )  # of a grant
    resource = models.CharField(
        max_length=500, blank=True
    )  # of a grant: the only endpoint that it counts for (RFC 8707)
    scopes = models.JSONField(default=list)  # values of AgentScope
    every_server = models.BooleanField(default=False)
    servers = models.ManyToManyField(Server, related_name="agent_tokens", blank=True)  # if not every_server
    tools = models.JSONField(default=list)  # patterns of names, such as search_*; empty: every tool
    addresses = models.JSONField(default=list)  # networks, such as 192.0.2.0/24; empty: every address
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    last_address = models.CharField(max_length=45, blank=True)
    last_program = models.CharField(max_length=120, blank=True)  # as the program names itself
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ["-id"]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name} (mca_{self.public_id})"

    @property
    def shown(self) -> str:
        return f"mca_{self.public_id}_…"

    @property
    def state(self) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= timezone.now() else "active"

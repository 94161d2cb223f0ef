import uuid
from urllib.parse import urlsplit

from django.db import models
from django.utils import timezone

from servers.enums import DocumentState, OAuthClientKind
from servers.models.agent_token import AgentToken


class OAuthClient(models.Model):
    """A client that sends people here to authorize it to act for them. The `client_id` of a DOCUMENT is the URL of its
    metadata document (MCP 2025-11-25 *Client ID Metadata Documents*)."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=12, choices=OAuthClientKind)
    client_id = models.CharField(max_length=500, unique=True)
    name = models.CharField(max_length=120, blank=True)  # as the client gave it, except for ADDED
    redirect_uris = models.JSONField(default=list)
    digest = models.CharField(max_length=64, blank=True)  # of the client secret; public clients have none
    created_at = models.DateTimeField(default=timezone.now)
    added_by = models.CharField(max_length=150, blank=True)
    last_used_at = models.DateTimeField(null=True)
    blocked_at = models.DateTimeField(null=True)
    blocked_by = models.CharField(max_length=150, blank=True)
    # for a DOCUMENT: whether a worker has read it
    document = models.CharField(max_length=12, choices=DocumentState, blank=True)
    document_problem = models.CharField(max_length=300, blank=True)
    document_at = models.DateTimeField(null=True)  # when that state last changed
    document_read_at = models.DateTimeField(null=True)  # when the stored copy was read

    class Meta:
        ordering = ["-id"]
        default_permissions = ()

    def __str__(self) -> str:
        return self.label

    @property
    def confidential(self) -> bool:
        return bool(self.digest)

    @property
    def label(self) -> str:
        return self.name or self.host or self.client_id

    @property
    def host(self) -> str:
        """The only verified part of a DOCUMENT client: its document came from this host."""
        return urlsplit(self.client_id).netloc if self.kind == OAuthClientKind.DOCUMENT else ""


class OAuthCode(models.Model):
    """An authorization code (RFC 6749 section 4.1). Its grant exists already, but expires with the code unless the code
    is redeemed."""

    digest = models.CharField(max_length=64, unique=True)
    grant = models.ForeignKey(AgentToken, on_delete=models.CASCADE, related_name="codes")
    redirect_uri = models.TextField()
    challenge = models.CharField(max_length=128)  # PKCE, S256
    grant_expires_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    used_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"code of {self.grant}"


class OAuthToken(models.Model):
    """An access or refresh token of a grant. Only its digest is stored."""

    digest = models.CharField(max_length=64, unique=True)
    grant = models.ForeignKey(AgentToken, on_delete=models.CASCADE, related_name="oauth_tokens")
    refresh = models.BooleanField(default=False)
    expires_at = models.DateTimeField(db_index=True)
    replaced_at = models.DateTimeField(null=True)  # for a refresh token: when its successor was issued

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{'refresh' if self.refresh else 'access'} token of {self.grant}"

import uuid

from django.conf import settings
from django.db import models

from servers.enums import CredentialKind
from servers.models.identity import Identity


class Credential(models.Model):
    """A sealed secret, bound to the destination it was entered for. `sealed` is JSON: the secret parts of its kind."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveIntegerField(default=1)
    # used by this person's identities only; null: in the vault that admins share
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="own_credentials"
    )
    name = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=20, choices=CredentialKind)
    scheme = models.CharField(max_length=10, blank=True)  # with host and port: where to send it; blank: to a child
    host = models.CharField(max_length=255, blank=True)
    port = models.PositiveIntegerField(default=0)
    issuer = models.CharField(max_length=2000, blank=True)  # OAuth: the authorization server's URL, byte for byte
    details = models.JSONField(default=dict)  # parts that are not secret: {"header": "X-API-Key"}, {"user": "ada"}, ...
    sealed = models.BinaryField(null=True)
    key_id = models.CharField(max_length=40, blank=True)
    fingerprint = models.CharField(max_length=20, blank=True)
    sealed_at = models.DateTimeField()  # its age is counted from here
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    refreshed_at = models.DateTimeField(null=True, blank=True)  # the last attempt to refresh, and why it failed
    refresh_fault = models.CharField(max_length=300, blank=True)
    generation = models.PositiveIntegerField(default=0)  # rises with each refresh: the loser of a race writes nothing
    held_by = models.UUIDField(null=True, blank=True)  # lease of the worker that refreshes it now, and its expiry
    held_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    # who is responsible for the reference that it is based on, as in Server.references_by
    references_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ["name", "id"]
        permissions = [("manage_credential", "May add, replace, use and delete credentials")]

    def __str__(self) -> str:
        return self.name


class CredentialUse(models.Model):
    """A server's identity authenticates with this credential. Blanked once the server has moved to another address."""

    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="uses")
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="uses")
    blanked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["credential", "identity"], name="credential_once_an_identity")]

    def __str__(self) -> str:
        return f"{self.credential_id} for {self.identity_id}"

import uuid

from django.conf import settings
from django.db import models

from servers.enums import IdentityKind
from servers.models.server import Server


class Identity(models.Model):
    """Who we are to a server: the credential that a session uses. Two identities never share an upstream session.

    A personal one belongs to its `user` only: no one else's call goes through its session.
    """

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="identities")
    kind = models.CharField(max_length=10, choices=IdentityKind, default=IdentityKind.SHARED)
    name = models.CharField(max_length=120, default="shared")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    declared_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    # from the server's last authentication challenge: {"metadata_url": "", "scopes": [], "scheme": "bearer"}; for the
    # shared one also {"expected": …}, an admin's choice: see servers/credentials/issuers.py
    challenge = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)  # for a personal one: removed, its history is kept

    class Meta:
        verbose_name_plural = "identities"
        constraints = [
            models.UniqueConstraint(
                fields=["server"], condition=models.Q(kind=IdentityKind.SHARED), name="one_shared_identity_a_server"
            ),
            models.UniqueConstraint(
                fields=["server", "user"],
                condition=models.Q(kind=IdentityKind.PERSONAL),
                name="one_personal_identity_a_user",
            ),
        ]

    def __str__(self) -> str:
        return self.name

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from servers.models.credential import Credential
from servers.models.server import Server


class ReferenceGrant(models.Model):
    """One reference that a holder may use. Administrators grant to people and groups; an upgrade granted each existing
    server and credential what it already used, for as long as it stays unchanged."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=1_010)  # "MCP_TOKEN" or "file:/run/secrets/token"
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="reference_grants"
    )
    group = models.ForeignKey(
        "auth.Group", null=True, blank=True, on_delete=models.CASCADE, related_name="reference_grants"
    )
    server = models.ForeignKey(Server, null=True, blank=True, on_delete=models.CASCADE, related_name="reference_grants")
    credential = models.ForeignKey(
        Credential, null=True, blank=True, on_delete=models.CASCADE, related_name="reference_grants"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["name", "id"]
        default_permissions = ()
        permissions = [("grant_reference", "May grant references to people and groups")]
        constraints = [
            models.CheckConstraint(
                condition=(
                    Q(user__isnull=False, group=None, server=None, credential=None)
                    | Q(user=None, group__isnull=False, server=None, credential=None)
                    | Q(user=None, group=None, server__isnull=False, credential=None)
                    | Q(user=None, group=None, server=None, credential__isnull=False)
                ),
                name="reference_grant_has_one_holder",
            ),
            models.UniqueConstraint(
                fields=["name", "user"], condition=Q(user__isnull=False), name="reference_once_a_user"
            ),
            models.UniqueConstraint(
                fields=["name", "group"], condition=Q(group__isnull=False), name="reference_once_a_group"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} for {self.user or self.group or self.server or self.credential}"

import uuid

from django.conf import settings
from django.contrib.auth.models import Group, Permission
from django.db import models
from django.utils import timezone

from servers.enums import LinkPurpose, LinkState, Theme


class ServiceAccount(models.Model):
    """Makes a user an account for agents: it has permissions and tokens, and never signs in."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="service_account")
    purpose = models.CharField(max_length=300, blank=True)
    created_by = models.CharField(max_length=150)  # the name, kept when that account goes

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.user.get_username()


class Preferences(models.Model):
    """How pages look to one person, in every browser. Without a row: the browser's own time zone and colors."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preferences")
    time_zone = models.CharField(max_length=64, blank=True)  # a name of the IANA database; empty: the browser's
    utc = models.BooleanField(default=False)  # the switch: UTC instead of that zone
    theme = models.CharField(max_length=10, choices=Theme, blank=True)  # empty: what each browser keeps

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"preferences of user {self.user_id}"


class AccountLink(models.Model):
    """A link that one person may use once: to create an account, or to set a new password. Only its digest is stored."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    purpose = models.CharField(max_length=10, choices=LinkPurpose)
    digest = models.CharField(max_length=64, unique=True)
    # whose password it sets; of an invitation: the account that was created with it
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=150, blank=True)
    email = models.EmailField(blank=True)
    superuser = models.BooleanField(default=False)
    groups = models.ManyToManyField(Group, related_name="+")
    permissions = models.ManyToManyField(Permission, related_name="+")
    issued_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    issued_by_name = models.CharField(max_length=150)  # kept when the account goes
    by_command = models.BooleanField(default=False)  # issued on the command line, which may give every permission
    issued_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]
        default_permissions = ()
        permissions = [("manage_users", "May add people, change their rights and end their sign-ins")]

    def __str__(self) -> str:
        return self.name or self.email or f"{self.purpose} {self.uid}"

    @property
    def state(self) -> LinkState:
        if self.used_at is not None:
            return LinkState.USED
        if self.revoked_at is not None:
            return LinkState.REVOKED
        return LinkState.EXPIRED if self.expires_at <= timezone.now() else LinkState.OPEN

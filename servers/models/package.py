from django.conf import settings
from django.db import models

from servers.enums import Ecosystem, PinState
from servers.models.server import Server


class PinnedPackage(models.Model):
    """One version of a package, with its hash and those of all its dependencies: what a server's launcher may run."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="packages")
    state = models.CharField(max_length=10, choices=PinState)
    ecosystem = models.CharField(max_length=10, choices=Ecosystem)
    requested = models.CharField(max_length=2000)  # as in the registration; changing it ends the pin
    name = models.CharField(max_length=300)
    version = models.CharField(max_length=200)
    integrity = models.CharField(max_length=300)  # "sha512-…" (npm), "sha256:…"
    lock = models.TextField(blank=True)  # package-lock.json or pylock.toml; empty: created at the next start
    dependencies = models.PositiveIntegerField(default=0)
    pinned_at = models.DateTimeField()  # for an offer: when it was found
    pinned_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    pinned_name = models.CharField(max_length=150, blank=True)  # empty: the first start

    # For the pinned version: comparison with the registry.
    check_requested_at = models.DateTimeField(null=True)
    check_started_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True)
    check_problem = models.CharField(max_length=1000, blank=True)
    changed_integrity = models.CharField(max_length=300, blank=True)  # other content under this same version
    changed_name = models.CharField(max_length=300, blank=True)  # the package that changed: this one or a dependency

    # For an offer: its tools, compared with those of the pinned version at a person's request.
    compare_requested_at = models.DateTimeField(null=True)
    compare_started_at = models.DateTimeField(null=True)
    compared_at = models.DateTimeField(null=True)
    compare_problem = models.CharField(max_length=1000, blank=True)
    # {"added": ["search"], "removed": [], "changed": [{"name": "add", "change": "breaking", "reasons": [], "before": "{…}", "after": "{…}"}], "same": 3}
    tools = models.JSONField(default=dict)

    class Meta:
        ordering = ["id"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["server", "state"], name="package_once_a_state")]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

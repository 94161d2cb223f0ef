import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from servers.models import Payload, Server
from sessions.enums import ArgumentProblemKind


def shared_stay(collector: Any, field: Any, rows: Any, using: str) -> None:
    """When their owner is deleted, shared saved calls stay, because others use them."""
    models.SET_NULL(collector, field, rows.filter(shared=True), using)
    models.CASCADE(collector, field, rows.filter(shared=False), using)


class SavedCall(models.Model):
    """A named call of one server: what to call and with which arguments. Either shared with everyone who may call its
    server, or private to its owner. A shared one outlives its owner. Calls refer to it in `Call.saved`."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="saved_calls")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=shared_stay, related_name="+")
    name = models.CharField(max_length=80)
    shared = models.BooleanField(default=False)
    method = models.CharField(max_length=60)
    target = models.TextField()
    as_task = models.BooleanField(default=False)
    definition_digest = models.CharField(max_length=64, blank=True)  # the definition that the arguments were saved for
    arguments = models.ForeignKey(Payload, on_delete=models.PROTECT, related_name="+")
    # the digest of the payload that the arguments were copied from: erasing it also erases them here
    source = models.CharField(max_length=64, blank=True)
    doubt = models.CharField(max_length=10, choices=ArgumentProblemKind, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "pk"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["server", "name"], name="one_saved_call_a_name")]
        indexes = [models.Index(fields=["source"], name="saved_calls_by_source", condition=~Q(source=""))]

    def __str__(self) -> str:
        return self.name

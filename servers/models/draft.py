import uuid

from django.conf import settings
from django.db import models

from servers.enums import DraftState, TransportKind


class ServerDraft(models.Model):
    """What *Test connection* tries before anything is saved. The whole configuration is sealed; it expires in an hour."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveIntegerField(default=1)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    transport = models.CharField(max_length=20, choices=TransportKind)
    worker_label = models.CharField(max_length=60, blank=True)  # not sealed: it selects the worker that unseals it
    sealed = models.BinaryField()
    key_id = models.CharField(max_length=40)
    state = models.CharField(max_length=12, choices=DraftState, default=DraftState.REQUESTED)
    # [{"name": "resolve"|"connect"|"handshake"|"list", "state": "started"|"finished"|"failed", "seconds": 0.1, "detail": ""}]
    steps = models.JSONField(default=list)
    # {"server_info": {}, "revision": "", "era": "", "transport": "", "decided_by": "", "instructions": "", "tools": 3,
    #  "resources": 0, "prompts": 1}
    report = models.JSONField(default=dict)
    fault = models.CharField(max_length=40, blank=True)
    detail = models.TextField(blank=True)
    stderr_tail = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"draft {self.uid}"

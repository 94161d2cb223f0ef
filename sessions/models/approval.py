import uuid

from django.db import models
from django.db.models import Q

from servers.models import AgentToken, Bundle
from sessions.enums import ApprovalState
from sessions.models.call import Call


class Approval(models.Model):
    """Of one call of an agent, which is *held* until a person approves it. It counts for this row alone: what the call's
    row and its definition are is what was approved, and the row is sent at most once."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveBigIntegerField(default=1)
    call = models.OneToOneField(Call, on_delete=models.CASCADE, related_name="approval")
    token = models.ForeignKey(AgentToken, null=True, on_delete=models.SET_NULL, related_name="approvals")
    bundle = models.ForeignKey(Bundle, null=True, on_delete=models.SET_NULL, related_name="+")  # through which it came
    shown = models.TextField(blank=True)  # the target as that bundle names it; blank: it came to the server's endpoint
    same = models.CharField(max_length=64)  # as AgentCall.same
    destructive = models.BooleanField(default=False)
    why = models.CharField(max_length=500)  # the rule that asks, as a sentence
    state = models.CharField(max_length=10, choices=ApprovalState, default=ApprovalState.OPEN)
    created_at = models.DateTimeField(db_index=True)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=150, blank=True)
    detail = models.TextField(blank=True)  # why it was refused or voided

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["token", "same"], condition=Q(state="open"), name="approval_open_once")
        ]
        indexes = [models.Index(fields=["state", "-id"], name="approvals_by_state")]

    def __str__(self) -> str:
        return f"of {self.call_id}: {self.state}"

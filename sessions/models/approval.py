import uuid

from django.db import models
from django.db.models import Q

from servers.models import AgentToken, Bundle
from sessions.enums import ApprovalState
from sessions.models.call import Call


class Approval(models.Model):
    """The approval of one agent call, which is *held* until a person approves it. It applies only to this call as its
    row and its definition were when it was approved, and the call is sent at most once."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveBigIntegerField(default=1)
    call = models.OneToOneField(Call, on_delete=models.CASCADE, related_name="approval")
    token = models.ForeignKey(AgentToken, null=True, on_delete=models.SET_NULL, related_name="approvals")
    bundle = models.ForeignKey(Bundle, null=True, on_delete=models.SET_NULL, related_name="+")  # which it came through
    shown = models.TextField(blank=True)  # the target's name in that bundle; blank: not through a bundle
    same = models.CharField(max_length=64)  # like AgentCall.same
    destructive = models.BooleanField(default=False)
    why = models.CharField(max_length=500)  # the rule that requires approval, as a sentence
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

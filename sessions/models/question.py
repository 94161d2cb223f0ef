import uuid

from django.conf import settings
from django.db import models

from servers.models import Payload, Server
from sessions.enums import QuestionKind, QuestionState
from sessions.models.call import Call
from sessions.models.session import McpSession


class Question(models.Model):
    """An item of the inbox: a server's request that needs a person. Names are kept when their rows are deleted.

    A conditional UPDATE of `state` makes the answer final. The host that holds the session (`worker_uid`, `epoch`)
    reads it from the row, sends it to the server, and then sets `delivered_at`.
    """

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveBigIntegerField(default=1)
    session = models.ForeignKey(McpSession, null=True, on_delete=models.SET_NULL, related_name="questions")
    server = models.ForeignKey(Server, null=True, on_delete=models.SET_NULL, related_name="questions")
    server_name = models.CharField(max_length=120)
    identity_name = models.CharField(max_length=120)
    personal = models.BooleanField(default=False)  # asked on the session of a user's own identity
    call = models.ForeignKey(Call, null=True, on_delete=models.SET_NULL, related_name="questions")
    worker_uid = models.UUIDField(null=True)
    epoch = models.PositiveBigIntegerField(default=0)

    kind = models.CharField(max_length=10, choices=QuestionKind)
    method = models.CharField(max_length=60)
    origin = models.CharField(max_length=10)  # sessions.mcp.core.input_requests.Origin
    summary = models.CharField(max_length=300, blank=True)  # the beginning of the server's text
    question = models.ForeignKey(Payload, on_delete=models.PROTECT, related_name="+")  # params, JSON
    answer = models.ForeignKey(Payload, null=True, on_delete=models.PROTECT, related_name="+")  # JSON

    state = models.CharField(max_length=10, choices=QuestionState, default=QuestionState.OPEN)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    owner_name = models.CharField(max_length=150, blank=True)  # the user who made the call, took it, or answered it
    answered_by = models.CharField(max_length=150, blank=True)
    created_at = models.DateTimeField(db_index=True)
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    detail = models.TextField(blank=True)  # why it ended without an answer

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["state", "-id"], name="questions_by_state"),
            models.Index(fields=["worker_uid", "state"], name="questions_by_worker"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.state}"

import uuid

from django.db import models
from django.db.models import Q

from servers.models import AgentToken, Bundle, Server
from sessions.models.call import Call
from sessions.models.subscription import Subscription


class AgentSession(models.Model):
    """A legacy session of an agent with us. Any web process serves it. It belongs to the token that opened it."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    key = models.CharField(max_length=43, unique=True)  # the value of Mcp-Session-Id
    token = models.ForeignKey(AgentToken, on_delete=models.CASCADE, related_name="sessions")
    # the other end of the session: a server or a bundle
    server = models.ForeignKey(Server, null=True, on_delete=models.CASCADE, related_name="agent_sessions")
    bundle = models.ForeignKey(Bundle, null=True, on_delete=models.CASCADE, related_name="agent_sessions")
    revision = models.CharField(max_length=20)
    capabilities = models.JSONField(default=dict)  # as the agent declared them
    program = models.CharField(max_length=120, blank=True)  # the agent's own name for itself
    created_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    log_level = models.CharField(max_length=10, blank=True)  # set by logging/setLevel; blank: no lines
    streams_until = models.DateTimeField(null=True)  # set while it has a GET stream, which renews it

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["token", "-id"], name="agent_sessions_by_token"),
            models.Index(
                fields=["token", "last_seen_at"], name="agent_sessions_open", condition=Q(ended_at__isnull=True)
            ),
            models.Index(fields=["ended_at"], name="agent_sessions_ended", condition=Q(ended_at__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(server__isnull=True) ^ Q(bundle__isnull=True), name="agent_session_with_one"
            )
        ]

    def __str__(self) -> str:
        return f"{self.program} at {self.server_id or self.bundle_id}"


class AgentCall(models.Model):
    """The part that only agents' calls have. Written with the call's intent, in the same transaction."""

    call = models.OneToOneField(Call, on_delete=models.CASCADE, related_name="agent")
    token = models.ForeignKey(AgentToken, null=True, on_delete=models.SET_NULL, related_name="calls")
    token_name = models.CharField(max_length=120)
    program = models.CharField(max_length=120, blank=True)
    session = models.ForeignKey(AgentSession, null=True, on_delete=models.SET_NULL, related_name="calls")
    request_id = models.TextField(blank=True)  # the agent's request id, as JSON text; legacy only
    key = models.CharField(max_length=128, blank=True)  # the agent's own key, from the Idempotency-Key header
    same = models.CharField(
        max_length=64
    )  # the same for calls of one token with the same server, method, target and arguments
    # when the agent disconnected before it had the answer, or when its call began to wait for approval; null if it got
    # the answer or is still waiting
    unheard_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)  # when the agent cancelled the request that started it
    capabilities = models.JSONField(default=dict)  # what the agent answers; see sessions.agents.call_request.answerable
    log_level = models.CharField(max_length=10, blank=True)  # log lines that it wants for this call; blank: none
    asks_people = models.BooleanField(default=True)  # requests that it cannot answer wait in the inbox
    one_exchange = models.BooleanField(default=False)  # a modern server gets the agent's capabilities, not ours
    # the call whose server required input; each call is continued at most once
    continues = models.OneToOneField("self", null=True, on_delete=models.SET_NULL, related_name="continued_by")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session", "request_id"], condition=Q(session__isnull=False), name="agent_request_once"
            ),
            models.UniqueConstraint(fields=["token", "key"], condition=~Q(key=""), name="agent_key_once"),
        ]
        indexes = [
            models.Index(fields=["token", "same"], name="agent_calls_unheard", condition=Q(unheard_at__isnull=False))
        ]

    def __str__(self) -> str:
        return f"{self.token_name}: {self.call_id}"


class AgentAttachment(models.Model):
    """Another name for a call that an earlier request started: the id of a later request of a legacy session, or the
    key of a later request. A row has one of the two."""

    session = models.ForeignKey(AgentSession, null=True, on_delete=models.CASCADE, related_name="attachments")
    request_id = models.TextField(blank=True)  # like AgentCall.request_id
    token = models.ForeignKey(AgentToken, null=True, on_delete=models.CASCADE, related_name="attachments")
    key = models.CharField(max_length=128, blank=True)  # like AgentCall.key
    call = models.ForeignKey(AgentCall, on_delete=models.CASCADE, related_name="attachments")
    cancelled_at = models.DateTimeField(null=True)  # when the agent cancelled this request

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "request_id"], name="agent_attachment_once"),
            models.UniqueConstraint(fields=["token", "key"], condition=~Q(key=""), name="agent_attached_key_once"),
            models.CheckConstraint(
                condition=Q(session__isnull=True) ^ Q(token__isnull=True), name="agent_attachment_of_one"
            ),
        ]

    def __str__(self) -> str:
        return f"to {self.call_id}"


class AgentRound(models.Model):
    """Data between an agent and a modern server besides arguments and result; encrypted, and kept only for minutes.

    Up, until the call is sent: the agent's answers and the server's state. Back, once the server requires input: its
    state, for the call that continues this one."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    call = models.OneToOneField(Call, on_delete=models.CASCADE, related_name="agent_round")
    back = models.BooleanField(default=False)
    sealed = models.BinaryField()
    key_id = models.CharField(max_length=40)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"of {self.call_id}"


class AgentFollow(models.Model):
    """A resource that an agent follows: a legacy session until it ends, or a modern stream while it renews the row.
    With neither, as after its session was deleted (receivers.py), the agent has left; the row is kept for a while."""

    session = models.ForeignKey(AgentSession, null=True, on_delete=models.CASCADE, related_name="follows")
    stream = models.UUIDField(null=True)
    subscription = models.ForeignKey(Subscription, on_delete=models.CASCADE, related_name="agent_follows")
    uri = models.TextField()  # as the agent names it
    made = models.BooleanField(default=False)  # the subscription exists only because agents follow the resource
    renewed_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "subscription"], condition=Q(session__isnull=False), name="agent_follows_once"
            )
        ]
        indexes = [models.Index(fields=["stream"], name="agent_follows_by_stream", condition=Q(stream__isnull=False))]

    def __str__(self) -> str:
        return self.uri

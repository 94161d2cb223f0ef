import uuid

from django.db import models

from servers.models import Identity, Server
from sessions.enums import Desired, SessionCondition, SessionState
from sessions.mcp.core.errors import Fault
from sessions.models.worker import Worker

_ASKS = (Fault.UNAUTHORIZED, Fault.INSUFFICIENT_SCOPE)


class McpSession(models.Model):
    """Our live session with a server under one identity. Its owner writes the status only through the conditional
    UPDATEs of `sessions.connections.lifecycle`.

    `epoch` fences owners: it increases with each change of owner, and every write by a host includes it.
    `version` increases with every visible change; it is the sequence of the page's snapshot topic.
    """

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveBigIntegerField(default=1)
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="sessions")
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="sessions")
    desired = models.CharField(max_length=8, choices=Desired, default=Desired.CLOSED)
    state = models.CharField(max_length=16, choices=SessionState, default=SessionState.DISCONNECTED)
    condition = models.CharField(max_length=16, choices=SessionCondition, default=SessionCondition.NONE)
    state_since = models.DateTimeField()

    owner = models.ForeignKey(Worker, null=True, on_delete=models.SET_NULL, related_name="sessions")
    epoch = models.PositiveBigIntegerField(default=0)
    restart_requested = models.PositiveIntegerField(default=0)  # incremented by Reconnect and by a changed registration
    restart_done = models.PositiveIntegerField(default=0)
    refresh_requested = models.PositiveIntegerField(default=0)  # incremented by Refresh of the catalog
    refresh_done = models.PositiveIntegerField(default=0)

    watch_requested = models.PositiveIntegerField(default=0)  # incremented when subscriptions of this session change
    log_level = models.CharField(max_length=10, blank=True)  # lowest severity of log messages requested from the server
    paused = models.BooleanField(default=False)  # desired, but kept closed until a user resumes it
    paused_by = models.CharField(max_length=150, blank=True)

    attempts = models.PositiveIntegerField(default=0)
    next_retry_at = models.DateTimeField(null=True)
    fault = models.CharField(max_length=40, blank=True)  # sessions.mcp.core.errors.Fault
    fault_step = models.CharField(max_length=20, blank=True)
    fault_detail = models.TextField(blank=True)
    fault_at = models.DateTimeField(null=True)
    failing_since = models.DateTimeField(null=True)  # the first fault since it was open
    stderr_tail = models.TextField(blank=True)

    connected_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    latency_ms = models.FloatField(null=True)
    era = models.CharField(max_length=10, blank=True)
    revision = models.CharField(max_length=20, blank=True)
    transport = models.CharField(max_length=20, blank=True)  # the one in use, which may have been detected
    url = models.TextField(blank=True)  # the one in use, after redirects
    decided_by = models.TextField(blank=True)
    decided_at = models.DateTimeField(null=True)
    # sessions.mcp.core.memory.Remembered.wire(): used by the next opening; {} to detect everything again
    remembered = models.JSONField(default=dict)
    server_info = models.JSONField(default=dict)
    instructions = models.TextField(blank=True)
    server_capabilities = models.JSONField(default=dict)
    client_capabilities = models.JSONField(default=dict)
    # usage of the child and its descendants, from the owner: see sessions.host.processes; {} without a child
    process = models.JSONField(default=dict)
    process_at = models.DateTimeField(null=True)
    restarts = models.PositiveIntegerField(default=0)  # openings after the first, since the row was created

    # what the last read of each list changed, or why it failed: see sessions.catalog.reading.Note.wire()
    catalog_counts = models.JSONField(default=dict)
    catalog_read_at = models.DateTimeField(null=True)
    catalog_stale_at = models.DateTimeField(null=True)  # from the server's caching hints (ttlMs); null without any
    catalog_warnings = models.JSONField(default=list)
    # {"tool": ["list_limit", "Only the first …"]}: kind of a list -> the Fault that cut it, and the client's words
    catalog_cuts = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["server", "identity"], name="one_session_an_identity")]

    def __str__(self) -> str:
        return f"{self.server_id}/{self.identity_id} {self.state}"

    @property
    def shown_condition(self) -> str:
        """`condition`, or what the user has to do if the server sends users to its authorization server."""
        asks = self.condition == SessionCondition.NEEDS_AUTH and self.fault in _ASKS
        if not asks or "metadata_url" not in self.identity.challenge:
            return self.condition
        return "sign_in_again" if self.connected_at else "sign_in"

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from servers.enums import ActionSource
from servers.models import Identity, Payload, Server
from sessions.enums import ArgumentProblemKind, CallState
from sessions.models.session import McpSession

#: few calls exceed these; they have their own index
SLOW_MS, LARGE_BYTES = 1_000, 64 * 1024


class Head(models.Func):
    """The beginning of a text that may be too long for an index. Its length is not a parameter: SQLite uses the index
    only for exactly the same expression."""

    template = "SUBSTR(%(expressions)s, 1, 120)"
    output_field = models.TextField()


class Call(models.Model):
    """One request to a server. Its state changes only by conditional UPDATEs. Names outlive the rows they refer to."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    version = models.PositiveBigIntegerField(default=1)
    session = models.ForeignKey(McpSession, null=True, on_delete=models.SET_NULL, related_name="calls", db_index=False)
    server = models.ForeignKey(Server, null=True, on_delete=models.SET_NULL, related_name="calls", db_index=False)
    server_name = models.CharField(max_length=120)
    identity = models.ForeignKey(Identity, null=True, on_delete=models.SET_NULL, related_name="+")
    identity_name = models.CharField(max_length=120)
    personal = models.BooleanField(default=False)  # made with `user`'s own identity; survives its deletion
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    user_name = models.CharField(max_length=150)
    way = models.CharField(
        max_length=10, choices=ActionSource, blank=True
    )  # blank: written by a version that did not record it
    method = models.CharField(max_length=60, default="tools/call")
    target = models.TextField()  # name of the tool or prompt, URI of the resource, reference of a completion
    definition_digest = models.CharField(max_length=64, blank=True)
    arguments = models.ForeignKey(Payload, on_delete=models.PROTECT, related_name="+")
    preview = models.CharField(max_length=200, blank=True)  # the beginning of the arguments; empty once they are erased
    argument_bytes = models.PositiveBigIntegerField(default=0)
    total_bytes = models.PositiveBigIntegerField(default=0)  # of arguments and result
    result = models.ForeignKey(Payload, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    late_result = models.ForeignKey(Payload, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    as_task = models.BooleanField(default=False)  # the user chose a task where the tool can run without one
    doubt = models.CharField(max_length=10, choices=ArgumentProblemKind, blank=True, default="", db_default="")
    saved = models.UUIDField(null=True)  # the saved call that it was made from, which may have been deleted
    repeats = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="repeated_by", db_index=False
    )

    state = models.CharField(max_length=16, choices=CallState, default=CallState.REQUESTED)
    epoch = models.PositiveBigIntegerField(default=0)  # the session's epoch when the call was claimed
    worker_uid = models.UUIDField(null=True)
    open_questions = models.PositiveSmallIntegerField(default=0)  # items of the inbox that this call waits for
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)
    deadline = models.DateTimeField()  # latest time at which the call may be sent
    created_at = models.DateTimeField(db_index=True)
    sent_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    # from sending to the end, or from the request if nothing was sent; null while the call runs
    duration_ms = models.PositiveBigIntegerField(null=True)

    fault = models.CharField(max_length=40, blank=True)  # sessions.mcp.core.errors.Fault
    detail = models.TextField(blank=True)
    may_have_run = models.BooleanField(
        default=False
    )  # although it did not succeed: see sessions.calls.claims.CallOutcome
    error_code = models.BigIntegerField(null=True)  # JSON-RPC
    error_message = models.TextField(blank=True)
    error_data = models.TextField(blank=True)  # JSON
    progress = models.FloatField(null=True)
    progress_total = models.FloatField(null=True)
    progress_message = models.TextField(blank=True)
    schema_violation = models.TextField(blank=True)  # how the result violates the tool's output schema
    schema_valid = models.BooleanField(null=True)  # null: the tool has no output schema, or it could not be checked

    #: on a row that was read for its card: whether it has log lines; None: unknown
    has_lines: bool | None = None

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["server", "-id"], name="calls_by_server"),
            models.Index(fields=["server", "method", "-id"], name="calls_by_method"),
            models.Index(fields=["user", "-id"], name="calls_by_user"),
            models.Index(Head("target"), models.F("id").desc(), name="calls_by_target"),
            models.Index(fields=["way", "-id"], name="calls_by_way"),
            models.Index(fields=["method", "-id"], name="calls_by_kind"),
            models.Index(fields=["state", "-id"], name="calls_by_outcome"),
            models.Index(fields=["session", "state"], name="calls_by_session"),
            models.Index(fields=["session", "-id"], name="calls_of_session"),
            models.Index(fields=["-id"], name="calls_slow", condition=Q(duration_ms__gte=SLOW_MS)),
            models.Index(fields=["-id"], name="calls_large", condition=Q(total_bytes__gte=LARGE_BYTES)),
            # Every index costs time in each call; most calls have no late result and repeat nothing.
            models.Index(fields=["result"], name="calls_by_result", condition=Q(result__isnull=False)),
            models.Index(fields=["late_result"], name="calls_by_late_result", condition=Q(late_result__isnull=False)),
            models.Index(fields=["saved", "-id"], name="calls_by_saved", condition=Q(saved__isnull=False)),
            models.Index(fields=["repeats"], name="calls_by_repeated", condition=Q(repeats__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.target} {self.state}"

    @property
    def effect_unknown(self) -> bool:
        """Whether a second run may repeat an effect of the first, because it is unknown how far the first one got."""
        return self.state == CallState.OUTCOME_UNKNOWN or self.may_have_run


class Attempt(models.Model):
    """Committed before its bytes are sent. Another one exists only after a definite rejection of the previous one."""

    call = models.ForeignKey(Call, on_delete=models.CASCADE, related_name="attempts", db_index=False)
    number = models.PositiveSmallIntegerField()
    reason = models.CharField(max_length=60)
    at = models.DateTimeField()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["call", "number"], name="attempt_once")]

    def __str__(self) -> str:
        return f"{self.call_id}.{self.number}"


class IndexCursor(models.Model):
    """How far the audit log has been read into the index of the explorer's search."""

    name = models.CharField(max_length=20, primary_key=True)
    seq = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}:{self.seq}"

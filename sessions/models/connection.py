from django.db import models

from sessions.enums import SessionCondition, SessionState
from sessions.models.session import McpSession


class ConnectionEvent(models.Model):
    """One line of a session's connection timeline: a bounded ring, numbered without gaps by the session's owner.

    Consecutive equal failures share one line: `repeats` counts them, and `last_at` is the time of the newest.
    """

    session = models.ForeignKey(McpSession, on_delete=models.CASCADE, related_name="connection_events")
    number = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    last_at = models.DateTimeField()
    repeats = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, choices=SessionState)
    condition = models.CharField(max_length=16, choices=SessionCondition, default=SessionCondition.NONE)
    title = models.CharField(max_length=40, blank=True)  # only if the line is not a state change: "Pause", "Taken"
    attempt = models.PositiveIntegerField(default=0)
    epoch = models.PositiveBigIntegerField(default=0)
    worker = models.CharField(max_length=200, blank=True)  # its node name
    fault = models.CharField(max_length=40, blank=True)
    step = models.CharField(max_length=20, blank=True)
    detail = models.TextField(blank=True)
    next_retry_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["session", "number"], name="connection_event_once")]

    def __str__(self) -> str:
        return f"{self.number} {self.state}"

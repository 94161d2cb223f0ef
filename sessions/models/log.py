from django.db import models

from servers.models import Identity, Server
from sessions.enums import LogSource


class LogLine(models.Model):
    """One line of a session's log: a bounded ring per session, numbered without gaps by its only owner."""

    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="log_lines")
    identity = models.ForeignKey(
        Identity, null=True, on_delete=models.CASCADE, related_name="+"
    )  # null: the shared identity
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    source = models.CharField(max_length=10, choices=LogSource)
    level = models.CharField(max_length=12, default="info")  # one of the eight levels of RFC 5424
    logger = models.CharField(max_length=200, blank=True)
    text = models.TextField()
    call_uid = models.UUIDField(null=True)

    class Meta:
        ordering = ["seq"]
        indexes = [models.Index(fields=["at"], name="log_lines_by_time")]
        constraints = [
            models.UniqueConstraint(
                fields=["server", "seq"], condition=models.Q(identity=None), name="shared_log_line_once"
            ),
            models.UniqueConstraint(
                fields=["identity", "seq"], condition=models.Q(identity__isnull=False), name="personal_log_line_once"
            ),
        ]

    def __str__(self) -> str:
        return self.text[:80]

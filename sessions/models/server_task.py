from datetime import timedelta
from typing import Final

from django.db import models
from django.utils import timezone

from sessions.enums import CallState
from sessions.models.call import Call
from sessions.models.session import McpSession

#: a server that names no lifetime may keep a task forever; we do not poll forever
FOLLOWED_FOR: Final = timedelta(days=7)


class ServerTaskQuerySet(models.QuerySet["ServerTask"]):
    def orphaned(self) -> "ServerTaskQuerySet":
        """Tasks whose call ended without an answer, with no result found since."""
        return self.filter(ended_at=None, call__state=CallState.OUTCOME_UNKNOWN, call__late_result=None)

    def followed_on(self) -> "ServerTaskQuerySet":
        return self.orphaned().filter(begun_at__gt=timezone.now() - FOLLOWED_FOR)


class ServerTask(models.Model):
    """A call that the server runs as a task. It outlives the worker that started it: the next owner of the session
    continues to follow it. Its result is the call's."""

    call = models.OneToOneField(Call, on_delete=models.CASCADE, related_name="task")
    session = models.ForeignKey(McpSession, null=True, on_delete=models.SET_NULL, related_name="+")
    task_id = models.TextField()  # the server's own
    status = models.CharField(max_length=20)  # sessions.mcp.core.tasks.Status
    message = models.TextField(blank=True)
    ttl_seconds = models.FloatField(null=True)  # from its start; null: unlimited
    begun_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    followed_since = models.DateTimeField(null=True)  # by a later session than the one that started it
    ended_at = models.DateTimeField(null=True)  # when following it ended
    detail = models.TextField(blank=True)  # why following it ended without a result, or why it could not be cancelled
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.CharField(max_length=150, blank=True)

    objects = ServerTaskQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.call_id} {self.status}"

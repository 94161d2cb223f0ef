import uuid

from django.db import models


class Worker(models.Model):
    """One incarnation of a session host. A restart is a new row, so it never reads the mail of its former life."""

    uid = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    node = models.CharField(max_length=200)  # Celery's node name, the same over restarts
    machine = models.CharField(max_length=64)  # /etc/machine-id or the host name: says whether `pid` can be judged here
    pid = models.PositiveIntegerField()
    process_started = models.CharField(max_length=40, blank=True)  # start ticks of the pid: a reused pid is not us
    labels = models.JSONField(default=list)
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(db_index=True)  # by the database's clock
    draining = models.BooleanField(default=False)
    session_count = models.PositiveIntegerField(default=0)
    isolation = models.CharField(
        max_length=40, blank=True
    )  # how stdio children are kept: "pid namespace", "setpriv", "none"

    def __str__(self) -> str:
        return f"{self.node} {self.uid}"

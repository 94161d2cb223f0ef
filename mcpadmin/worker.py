"""`celery -A mcpadmin.worker worker`: the app with the session host. Only workers import this module."""

from mcpadmin.celery import app
from sessions.host.boot import HostStep

app.steps["worker"].add(HostStep)

__all__ = ["app"]

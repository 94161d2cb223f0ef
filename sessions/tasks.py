"""Celery tasks, by explicit names. What people ask of a session's host is no task: it stands in a row, and a ring (see
sessions.bus) has the host look at it."""

from celery import shared_task

from servers.domain.drafts import purge_drafts
from sessions.domain import retention
from sessions.host.log_ring import trim_all


@shared_task(name="sessions.housekeeping")
def housekeeping() -> None:
    """What only age makes due; two schedulers do no harm."""
    purge_drafts()
    trim_all()
    retention.trim_all()

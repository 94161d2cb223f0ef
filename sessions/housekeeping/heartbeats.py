"""Heartbeats of workers. The database alone decides which are alive, by its own clock."""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from sessions.models import Worker
from sessions.models.clock import database_now


@dataclass(frozen=True)
class Incarnation:
    """One run of one worker process."""

    uid: UUID
    node: str
    machine: str
    pid: int
    process_started: str
    isolation: str = ""
    confinement: str = ""
    confinement_reason: str = ""
    labels: list[str] = field(default_factory=list)


def heartbeat(me: Incarnation, *, draining: bool, sessions: int) -> int:
    """Write the heartbeat, and create the row if it is missing. Returns the row's id."""
    now = database_now()
    beat = {"heartbeat_at": now, "ended_at": None, "draining": draining, "session_count": sessions}
    if not Worker.objects.filter(uid=me.uid).update(**beat):
        Worker.objects.create(started_at=now, **beat, **vars(me))
    return Worker.objects.values_list("id", flat=True).get(uid=me.uid)


def deregister(worker_uid: UUID) -> None:
    """Delete the row of a worker that shut down cleanly."""
    Worker.objects.filter(uid=worker_uid).delete()


def stale_workers() -> QuerySet[Worker]:
    return Worker.objects.filter(heartbeat_at__lt=database_now() - timedelta(seconds=settings.STALE_SECONDS))


def same_node(me: Incarnation) -> list[Worker]:
    """Other incarnations of this node name on this machine, where their process ids can be checked."""
    return list(Worker.objects.filter(node=me.node, machine=me.machine).exclude(uid=me.uid))

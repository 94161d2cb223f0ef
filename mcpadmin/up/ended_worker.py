"""What a web process does with a report of `up` that a worker ended (`ready.on_ended_worker`, connected in asgi.py)."""

import structlog
from django.db import DatabaseError, connections, transaction

from sessions.housekeeping import dead_workers
from sessions.housekeeping.machine import machine_id

log = structlog.get_logger("mcpadmin.up")


def record(node: str, pid: int) -> None:
    """Record that `up` reaped one of our workers. Pages show it at once, and other workers take over without waiting
    for its heartbeat to go stale."""
    try:
        with transaction.atomic():
            dead_workers.process_ended(node, machine_id(), pid)
    except DatabaseError as problem:  # the next worker to start, or another one, notices
        log.warning("the end of a worker could not be recorded", node=node, problem=type(problem).__name__)
    finally:
        connections.close_all()

"""Cleanup after dead workers. `heartbeats` says which workers are alive.

Everything here runs inside the caller's transaction, in the writer of the worker's process.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from servers.audit.record import Event
from servers.enums import AuditOutcome
from sessions import hints
from sessions.calls.final_states import BATCH, FinalState, announce, end_now, finish_event
from sessions.connections import lifecycle, timeline
from sessions.enums import CallState, SessionState
from sessions.inbox import questions
from sessions.models import Call, McpSession, Worker
from sessions.models.clock import database_now
from sessions.subscriptions import watches

WORKER_GONE = FinalState(
    CallState.SENT,
    CallState.OUTCOME_UNKNOWN,
    AuditOutcome.UNKNOWN,
    "The worker running this call is gone, so its answer is lost. The tool may have run.",
)


@dataclass(frozen=True)
class Reaped:
    events: list[Event] = field(default_factory=list)
    dead: list[UUID] = field(default_factory=list)


def process_ended(node: str, machine: str, pid: int) -> list[UUID]:
    """A supervisor reaped the process of a worker, which proves that it ended. The row says so at once, pages are
    notified, and the other workers are woken to clean up. Returns the worker's uid if the process was a worker."""
    rows = Worker.objects.filter(node=node, machine=machine, pid=pid, ended_at=None)
    ended = list(rows)
    rows.update(ended_at=database_now())
    held = McpSession.objects.filter(owner__in=ended)
    held.update(version=F("version") + 1)  # what pages show about them has changed
    for server_uid in set(held.values_list("server__uid", flat=True)):
        lifecycle.announce(server_uid)
    if ended:
        transaction.on_commit(hints.workers_changed)
    for worker in ended:
        for other in Worker.objects.living().filter(draining=False).exclude(pk=worker.pk):
            transaction.on_commit(partial(hints.wake_worker, other.uid, "reap", worker.uid))
    return [worker.uid for worker in ended]


def ended_workers() -> list[Worker]:
    """Workers whose process a supervisor saw end."""
    return list(Worker.objects.exclude(ended_at=None))


def reap(dead: Iterable[Worker]) -> Reaped:
    """Clean up after dead workers: sent calls become *outcome unknown*, sessions become free, rows are deleted."""
    bodies = list(dead)
    ids, uids = [body.pk for body in bodies], [body.uid for body in bodies]
    watches.left_behind(bodies)
    _free(McpSession.objects.filter(owner_id__in=ids), "This session's worker is gone.")
    left = Call.objects.filter(state=CallState.SENT).filter(_without_worker(uids))
    calls = end_now(list(left.values_list("uid", flat=True)[:BATCH]), WORKER_GONE)
    for call in calls:
        announce(call)
    Worker.objects.filter(pk__in=ids).delete()
    unanswered = questions.withdraw_of_dead_workers(uids)
    return Reaped([*unanswered, *(finish_event(call, WORKER_GONE) for call in calls)], uids)


def _without_worker(dead: list[UUID]) -> Q:
    """Rows of a dead worker, or of a worker whose own row is gone."""
    known = Worker.objects.filter(uid=OuterRef("worker_uid"))
    return Q(worker_uid__in=dead) | Q(~Exists(known))


def _free(sessions: QuerySet[McpSession], words: str) -> None:
    """Raises the epoch at once, so that the old owner cannot write anything even if it is still running."""
    for session in sessions.select_related("server", "owner"):
        fields: dict[str, Any] = {
            "owner": None,
            "epoch": F("epoch") + 1,
            "version": F("version") + 1,
            "state": SessionState.DISCONNECTED,
            "state_since": timezone.now(),
            "next_retry_at": None,
            "process": {},
            "process_at": None,
        }
        if McpSession.objects.filter(pk=session.pk, owner_id=session.owner_id).update(**fields):
            lifecycle.unowned(session.pk)
            _notify(session, words)


def _notify(session: McpSession, words: str) -> None:
    node = session.owner.node if session.owner else ""
    session.refresh_from_db(fields=["state", "condition", "epoch"])
    entry = timeline.TimelineEntry(session.state, session.condition, epoch=session.epoch, worker=node, detail=words)
    timeline.append(session.pk, entry)
    lifecycle.announce(session.server.uid)


def disown(worker_id: int, session_ids: Iterable[int]) -> None:
    """Free sessions that belong to this worker in the database but that the worker does not know."""
    lost = McpSession.objects.filter(owner_id=worker_id, pk__in=list(session_ids))
    _free(lost, "The worker that owned this session no longer had it.")

"""Who holds which session: heartbeats, dead workers, claims. The database alone decides, by its own clock.

Everything here runs inside the caller's transaction, in the writer of the worker's process.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from servers.audit.record import Event
from servers.enums import AuditOutcome
from sessions.domain import claims, lifecycle
from sessions.domain.endings import Ending, end_now, finish_event
from sessions.domain.lifecycle import Hold
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.models import Call, McpSession, Worker

CLAIM_LIMIT = 50
CALL_BATCH = 200
_OPENABLE = Q(desired=Desired.OPEN, server__enabled=True, server__archived_at=None)

WORKER_GONE = Ending(
    CallState.SENT,
    CallState.OUTCOME_UNKNOWN,
    AuditOutcome.UNKNOWN,
    "The worker that ran this call is gone, so its answer cannot be known. The tool may have run.",
)
LAPSED = Ending(
    CallState.REQUESTED,
    CallState.EXPIRED,
    AuditOutcome.FAILED,
    "The session did not become ready before the call's deadline. It did not reach the server.",
)


@dataclass(frozen=True)
class Incarnation:
    """One life of one worker process."""

    uid: UUID
    node: str
    machine: str
    pid: int
    process_started: str
    isolation: str = ""
    labels: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Burial:
    events: list[Event] = field(default_factory=list)
    dead: list[UUID] = field(default_factory=list)


def database_now() -> datetime:
    """SQLite has no clock but that of this machine."""
    if connection.vendor == "sqlite":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        return moment


def heartbeat(me: Incarnation, *, draining: bool, sessions: int) -> int:
    """Write the sign of life, with a new row when none is there; returns the row's id."""
    now = database_now()
    beat = {"heartbeat_at": now, "draining": draining, "session_count": sessions}
    if not Worker.objects.filter(uid=me.uid).update(**beat):
        Worker.objects.create(started_at=now, **beat, **vars(me))
    return Worker.objects.values_list("id", flat=True).get(uid=me.uid)


def farewell(worker_uid: UUID) -> None:
    """The row of a worker that ended in order goes with it."""
    Worker.objects.filter(uid=worker_uid).delete()


# --- the dead ---------------------------------------------------------------------------------------------------------
def stale_workers() -> QuerySet[Worker]:
    return Worker.objects.filter(heartbeat_at__lt=database_now() - timedelta(seconds=settings.STALE_SECONDS))


def namesakes(me: Incarnation) -> list[Worker]:
    """Other incarnations of this node name on this machine: their process ids can be judged here."""
    return list(Worker.objects.filter(node=me.node, machine=me.machine).exclude(uid=me.uid))


def bury(dead: Iterable[Worker]) -> Burial:
    """End what dead workers left: their sent calls become *outcome unknown*, their sessions free; their rows go."""
    bodies = list(dead)
    ids, uids = [body.pk for body in bodies], [body.uid for body in bodies]
    _free(McpSession.objects.filter(owner_id__in=ids))
    left = Call.objects.filter(state=CallState.SENT).filter(_without_worker(uids))
    calls = end_now(list(left.values_list("uid", flat=True)[:CALL_BATCH]), WORKER_GONE)
    for call in calls:
        claims.announce(call)
    Worker.objects.filter(pk__in=ids).delete()
    return Burial([finish_event(call, WORKER_GONE) for call in calls], uids)


def _without_worker(dead: list[UUID]) -> Q:
    """Of a dead worker, or of one whose row is gone."""
    known = Worker.objects.filter(uid=OuterRef("worker_uid"))
    return Q(worker_uid__in=dead) | ~Exists(known)


def _free(sessions: QuerySet[McpSession]) -> None:
    """The epoch rises here already, so that the old owner can write nothing even if it lives."""
    for session in sessions.select_related("server"):
        wanted = session.desired == Desired.OPEN and session.server.enabled and session.server.archived_at is None
        fields = {
            "owner": None,
            "epoch": F("epoch") + 1,
            "version": F("version") + 1,
            "state": SessionState.DISCONNECTED,
            "state_since": timezone.now(),
            "condition": SessionCondition.WAITING_WORKER if wanted else SessionCondition.NONE,
        }
        if McpSession.objects.filter(pk=session.pk, owner_id=session.owner_id).update(**fields):
            lifecycle.announce(session.pk, session.server.uid)


def disown(worker_id: int, session_ids: Iterable[int]) -> None:
    """Free sessions that are this worker's by the database and that it does not know of."""
    _free(McpSession.objects.filter(owner_id=worker_id, pk__in=list(session_ids)))


def lapse() -> list[Event]:
    """End calls that nobody could send before their deadline."""
    due = Call.objects.filter(state=CallState.REQUESTED, deadline__lte=timezone.now())
    calls = end_now(list(due.values_list("uid", flat=True)[:CALL_BATCH]), LAPSED)
    for call in calls:
        claims.announce(call)
    return [finish_event(call, LAPSED) for call in calls]


# --- claims ---------------------------------------------------------------------------------------------------------
def claim_some(worker_id: int) -> list[Hold]:
    """Claim wanted sessions without owner: a fair share of them, at most CLAIM_LIMIT, in random order."""
    free = McpSession.objects.filter(_OPENABLE, owner=None)
    waiting = free.count()
    if not waiting:
        return []
    fresh = database_now() - timedelta(seconds=settings.STALE_SECONDS)
    living = Worker.objects.filter(heartbeat_at__gte=fresh, draining=False).count()
    share = min(CLAIM_LIMIT, math.ceil(waiting / max(1, living)))
    return _claimed(list(free.order_by("?").values_list("pk", flat=True)[:share]), worker_id)


def claim_one(session_uid: UUID, worker_id: int) -> list[Hold]:
    """Claim this session if it is wanted and free."""
    free = McpSession.objects.filter(_OPENABLE, uid=session_uid, owner=None)
    return _claimed(list(free.values_list("pk", flat=True)), worker_id)


def _claimed(pks: list[int], worker_id: int) -> list[Hold]:
    found = []
    for pk in pks:
        # Each condition stands on the row itself: inside a joined sub-query PostgreSQL would not judge it again.
        rows = McpSession.objects.filter(pk=pk, owner=None, desired=Desired.OPEN)
        fields = {"state": SessionState.DISCONNECTED, "condition": SessionCondition.NONE, "state_since": timezone.now()}
        if rows.update(owner_id=worker_id, epoch=F("epoch") + 1, version=F("version") + 1, **fields):
            found.append(_hold(pk, worker_id))
    return found


def _hold(session_id: int, worker_id: int) -> Hold:
    session = McpSession.objects.select_related("server", "identity").get(pk=session_id)
    worker = Worker.objects.get(pk=worker_id)
    return Hold(
        session_id=session.pk,
        session_uid=session.uid,
        server_id=session.server_id,
        server_uid=session.server.uid,
        server_name=session.server.name,
        identity_name=session.identity.name,
        worker_id=worker.pk,
        worker_uid=worker.uid,
        epoch=session.epoch,
    )

"""Who lives and who is dead: heartbeats, and what the dead left. The database alone decides, by its own clock.

Everything here runs inside the caller's transaction, in the writer of the worker's process.
"""

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
from sessions.domain import claims, lifecycle, pausing, questions, timeline, watches
from sessions.domain.endings import Ending, end_now, finish_event
from sessions.enums import CallState, SessionState
from sessions.models import Call, McpSession, Worker

CALL_BATCH = 200

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
    watches.left_behind(bodies)
    _free(McpSession.objects.filter(owner_id__in=ids), "The worker that held the session is gone.")
    left = Call.objects.filter(state=CallState.SENT).filter(_without_worker(uids))
    calls = end_now(list(left.values_list("uid", flat=True)[:CALL_BATCH]), WORKER_GONE)
    for call in calls:
        claims.announce(call)
    Worker.objects.filter(pk__in=ids).delete()
    unanswered = questions.withdraw_of_the_dead(uids)
    return Burial([*unanswered, *(finish_event(call, WORKER_GONE) for call in calls)], uids)


def _without_worker(dead: list[UUID]) -> Q:
    """Of a dead worker, or of one whose row is gone."""
    known = Worker.objects.filter(uid=OuterRef("worker_uid"))
    return Q(worker_uid__in=dead) | ~Exists(known)


def _free(sessions: QuerySet[McpSession], words: str) -> None:
    """The epoch rises here already, so that the old owner can write nothing even if it lives."""
    for session in sessions.select_related("server", "owner"):
        fields = {
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
            _tell(session, words)


def _tell(session: McpSession, words: str) -> None:
    node = session.owner.node if session.owner else ""
    session.refresh_from_db(fields=["state", "condition", "epoch"])
    entry = timeline.Entry(session.state, session.condition, epoch=session.epoch, worker=node, detail=words)
    timeline.append(session.pk, entry)
    lifecycle.announce(session.server.uid)


def disown(worker_id: int, session_ids: Iterable[int]) -> None:
    """Free sessions that are this worker's by the database and that it does not know of."""
    lost = McpSession.objects.filter(owner_id=worker_id, pk__in=list(session_ids))
    _free(lost, "The worker that held the session did not know of it.")


def lapse() -> list[Event]:
    """End calls that nobody could send before their deadline, those whose session was paused meanwhile, and questions
    whose time is over."""
    waiting = Call.objects.filter(state=CallState.REQUESTED)
    late, paused = waiting.filter(deadline__lte=timezone.now()), waiting.filter(session__paused=True)
    return _ended(late, LAPSED) + _ended(paused, pausing.PAUSED_BEFORE) + questions.lapse()


def _ended(due: QuerySet[Call], ending: Ending) -> list[Event]:
    calls = end_now(list(due.values_list("uid", flat=True)[:CALL_BATCH]), ending)
    for call in calls:
        claims.announce(call)
    return [finish_event(call, ending) for call in calls]

"""The data that a session's owner writes about its subscriptions: their states, notification counts and gaps.

Every change is conditional on the lease, so a former owner changes nothing. Verbs run inside the caller's transaction,
and pages are notified after the commit. `subscribing` has the users' commands.

    waiting -> requested -> listening | refused;  listening -> lost -> listening;  any of them -> waiting
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, Final

from django.db.models import DateTimeField, Exists, F, Field, IntegerField, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

from servers.commit_hooks import after_commit
from servers.sql import database
from servers.storable import storable
from sessions import hints
from sessions.connections.lifecycle import Lease, held
from sessions.enums import SubscriptionState
from sessions.models import McpSession, Subscription, SubscriptionGap, SubscriptionHour, Worker

REASON_CHARS: Final = 2_000
_SINCE_UNKNOWN: Final = "mcpadmin stopped unexpectedly; the exact start of this gap is unknown."
#: the fault of a read that may have ended the session
ENDED_SESSION: Final = "ended_session"
_WORKER_GONE: Final = "This subscription's worker is gone."


@dataclass(frozen=True, slots=True)
class Watch:
    """A resource with an active subscription. `unread`: the stored version may be outdated, even if the resource was
    requested before: the subscription ended and resumed before its worker noticed. `ended_session_at`: when its last
    read may have ended the session."""

    pk: int
    uri: str
    interval: float
    unread: bool
    ended_session_at: datetime | None = None


def mine(*leases: Lease) -> QuerySet[Subscription]:
    """The active subscriptions of sessions that are still ours."""
    ours = reduce(or_, map(held, leases)).filter(server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id"))
    return Subscription.objects.filter(Exists(ours), active=True)


#: for a row of McpSession: whether it has an active subscription
WATCHED: Final = Exists(
    Subscription.objects.filter(server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id"), active=True)
)


def watched(lease: Lease) -> list[Watch]:
    """The watches of a session. Only reads."""
    gap = Exists(SubscriptionGap.objects.filter(subscription=OuterRef("pk"), ended_at=None))
    columns = ("pk", "uri", "min_interval_seconds", "state", "gap", "read_fault", "last_read_at")
    return [
        Watch(
            pk, uri, float(interval), gap or state == SubscriptionState.WAITING, at if fault == ENDED_SESSION else None
        )
        for pk, uri, interval, state, gap, fault, at in mine(lease).annotate(gap=gap).values_list(*columns)
    ]


# --- states of subscriptions
# ---------------------------------------------------------------------------------------------
def requested(lease: Lease, pks: Collection[int], at: datetime) -> None:
    """The request is being sent. A subscription that the server refused stays refused until the server agrees."""
    before = [SubscriptionState.WAITING, SubscriptionState.LOST]
    _move(mine(lease).filter(pk__in=pks, state__in=before), SubscriptionState.REQUESTED, "", at)


def settled(lease: Lease, listening: Collection[int], refused: Mapping[int, str], at: datetime) -> None:
    """Record what the server accepted, and why it refused the rest."""
    _move(mine(lease).filter(pk__in=listening), SubscriptionState.LISTENING, "", at)
    for pk, reason in refused.items():
        _move(mine(lease).filter(pk=pk), SubscriptionState.REFUSED, reason, at)


def lost(lease: Lease, reason: str, at: datetime, kept: Collection[int] = ()) -> None:
    """The session is open, but the server sends no notifications, except those of `kept`."""
    before = [SubscriptionState.LISTENING, SubscriptionState.REQUESTED]
    _move(mine(lease).filter(state__in=before).exclude(pk__in=kept), SubscriptionState.LOST, reason, at)


def waiting(lease: Lease, reason: str, at: datetime) -> None:
    """The session has ended."""
    _move(mine(lease), SubscriptionState.WAITING, reason, at)


def left_over(lease: Lease, at: datetime) -> None:
    """Handle subscriptions that an earlier owner left as *listening*: it did not record when that ended."""
    for row in mine(lease).filter(state=SubscriptionState.LISTENING):
        known = [moment for moment in (row.state_since, row.last_event_at, row.last_read_at) if moment]
        _open_gap(row.pk, max(known), _SINCE_UNKNOWN)
    _move(mine(lease).exclude(state=SubscriptionState.REFUSED), SubscriptionState.WAITING, "", at)


def left_behind(dead: Iterable[Worker]) -> None:
    """Handle subscriptions of dead workers, while their sessions still have these owners: no one has listened since
    their last heartbeat."""
    for worker in dead:
        sessions = McpSession.objects.filter(
            owner_id=worker.pk, server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id")
        )
        rows = Subscription.objects.filter(Exists(sessions), active=True)
        _move(rows, SubscriptionState.WAITING, _WORKER_GONE, worker.heartbeat_at)


def _move(rows: QuerySet[Subscription], state: SubscriptionState, reason: str, at: datetime) -> None:
    reason = storable(reason, REASON_CHARS)
    changed = []
    for pk, before in list(rows.exclude(state=state, reason=reason).values_list("pk", "state")):
        since = {} if before == state else {"state_since": at}
        if not rows.filter(pk=pk, state=before).update(state=state, reason=reason, version=F("version") + 1, **since):
            continue
        changed.append(pk)
        if before == SubscriptionState.LISTENING != state:
            _open_gap(pk, at, reason)
    announce(changed)


def _open_gap(pk: int, at: datetime, reason: str) -> None:
    """Open a gap, unless one is open already: that one covers this time too."""
    if not SubscriptionGap.objects.filter(subscription_id=pk, ended_at=None).exists():
        SubscriptionGap.objects.create(subscription_id=pk, began_at=at, reason=reason)


# --- notifications
# ------------------------------------------------------------------------------------------------------
def count_notifications(leases: Collection[Lease], counts: Mapping[int, tuple[int, datetime]]) -> None:
    """Add the notifications since the last time: by subscription, their number and the time of the newest. Takes a few
    statements for any number of subscriptions."""
    ours = mine(*leases).filter(pk__in=counts)
    numbers = _by("id", IntegerField(), {pk: number for pk, (number, _) in counts.items()})
    newest = _by("id", DateTimeField(), {pk: at for pk, (_, at) in counts.items()})
    if not ours.update(event_count=F("event_count") + numbers, last_event_at=newest, version=F("version") + 1):
        return
    changed, hours = list(ours.values_list("pk", flat=True)), dict[datetime, dict[int, int]]()
    for pk in changed:
        number, at = counts[pk]
        hours.setdefault(at.replace(minute=0, second=0, microsecond=0), {})[pk] = number
    for hour, found in hours.items():
        _count_hour(hour, found)
    announce(changed)


def _count_hour(hour: datetime, numbers: Mapping[int, int]) -> None:
    rows = SubscriptionHour.objects.filter(hour=hour, subscription_id__in=numbers)
    if rows.update(events=F("events") + _by("subscription_id", IntegerField(), numbers)) < len(numbers):
        known = set(rows.values_list("subscription_id", flat=True))
        SubscriptionHour.objects.bulk_create(
            SubscriptionHour(subscription_id=pk, hour=hour, events=number)
            for pk, number in numbers.items()
            if pk not in known
        )


def _by(column: str, field: "Field[Any, Any]", values: Mapping[int, Any]) -> RawSQL:
    """Each row's value in a statement for several rows. The ORM's own `Case` costs several times the statement."""
    prepared = [(key, field.get_db_prep_save(value, database())) for key, value in values.items()]
    sql = f"CASE {column} {'WHEN %s THEN %s ' * len(prepared)}END"
    return RawSQL(sql, list(chain.from_iterable(prepared)), output_field=field)  # noqa: S611  # with parameters


def read_failed(lease: Lease, pk: int, fault: str, detail: str, at: datetime) -> None:
    fields = {"read_fault": fault, "read_detail": storable(detail, REASON_CHARS), "last_read_at": at}
    if mine(lease).filter(pk=pk).update(version=F("version") + 1, **fields):
        announce([pk])


# --- for others ---------------------------------------------------------------------------------------------------------
def watched_session() -> Q:
    """Filter for sessions that an active subscription needs open."""
    active = Subscription.objects.filter(
        server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id"), active=True
    )
    return Q(Exists(active))


def announce(pks: Collection[int], kind: str = "subscription") -> None:
    """Notify the pages once the current transaction is committed."""
    for uid, version in Subscription.objects.filter(pk__in=pks).values_list("uid", "version"):
        after_commit(hints.subscription_changed, uid, version, kind)

"""What the owner of a session writes about its subscriptions: where each stands at the server, what was told, gaps.

Every change names the hold, so a former owner changes nothing; verbs run inside the caller's transaction, and pages
hear of them once it is committed. What people order stands in `subscriptions`.

    waiting -> requested -> listening | refused;  listening -> lost -> listening;  any of them -> waiting
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from sessions import bus
from sessions.domain.lifecycle import Hold, held, storable
from sessions.enums import SubscriptionState
from sessions.models import McpSession, Subscription, SubscriptionGap, SubscriptionHour, Worker

REASON_CHARS: Final = 2_000
_SINCE_UNKNOWN: Final = "mcpadmin ended without a word; since when nobody listened is not known exactly."
_WORKER_GONE: Final = "The worker that listened is gone."


@dataclass(frozen=True, slots=True)
class Watch:
    """A resource that somebody wants to be told about."""

    pk: int
    uri: str
    interval: float


def mine(hold: Hold) -> QuerySet[Subscription]:
    """The active subscriptions of a session that is still ours."""
    ours = held(hold).filter(server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id"))
    return Subscription.objects.filter(Exists(ours), active=True)


#: of a row of McpSession: whether anything is subscribed there
WATCHED: Final = Exists(
    Subscription.objects.filter(server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id"), active=True)
)


def watched(hold: Hold) -> list[Watch]:
    """Reads only."""
    rows = mine(hold).values_list("pk", "uri", "min_interval_seconds")
    return [Watch(pk, uri, float(interval)) for pk, uri, interval in rows]


# --- where an order stands ----------------------------------------------------------------------------------------------
def requested(hold: Hold, pks: Collection[int], at: datetime) -> None:
    """The server is being asked. One that it refused before stays refused until it says otherwise."""
    before = [SubscriptionState.WAITING, SubscriptionState.LOST]
    _move(mine(hold).filter(pk__in=pks, state__in=before), SubscriptionState.REQUESTED, "", at)


def settled(hold: Hold, listening: Collection[int], refused: Mapping[int, str], at: datetime) -> None:
    """What the server agreed to, and why not to the rest."""
    _move(mine(hold).filter(pk__in=listening), SubscriptionState.LISTENING, "", at)
    for pk, reason in refused.items():
        _move(mine(hold).filter(pk=pk), SubscriptionState.REFUSED, reason, at)


def lost(hold: Hold, reason: str, at: datetime) -> None:
    """The session lives and the server tells nothing."""
    told = [SubscriptionState.LISTENING, SubscriptionState.REQUESTED]
    _move(mine(hold).filter(state__in=told), SubscriptionState.LOST, reason, at)


def waiting(hold: Hold, reason: str, at: datetime) -> None:
    """The session is over."""
    _move(mine(hold), SubscriptionState.WAITING, reason, at)


def left_over(hold: Hold, at: datetime) -> None:
    """What a former life of the session left as *listening*: nobody wrote when that ended."""
    for row in mine(hold).filter(state=SubscriptionState.LISTENING):
        known = [moment for moment in (row.state_since, row.last_event_at, row.last_read_at) if moment]
        _open_gap(row.pk, max(known), _SINCE_UNKNOWN)
    _move(mine(hold).exclude(state=SubscriptionState.REFUSED), SubscriptionState.WAITING, "", at)


def left_behind(dead: Iterable[Worker]) -> None:
    """What dead workers listened to, while their sessions still name them: nobody has listened since their last
    heartbeat."""
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
    """Unless one is open: then nobody has listened since that one began."""
    if not SubscriptionGap.objects.filter(subscription_id=pk, ended_at=None).exists():
        SubscriptionGap.objects.create(subscription_id=pk, began_at=at, reason=reason)


# --- what the server told -----------------------------------------------------------------------------------------------
def told(hold: Hold, counts: Mapping[int, tuple[int, datetime]]) -> None:
    """Notifications since the last time: by subscription their number, and when the newest came."""
    changed = []
    for pk, (number, at) in counts.items():
        fields = {"event_count": F("event_count") + number, "last_event_at": at, "version": F("version") + 1}
        if mine(hold).filter(pk=pk).update(**fields):
            changed.append(pk)
            _count_hour(pk, at.replace(minute=0, second=0, microsecond=0), number)
    announce(changed)


def _count_hour(pk: int, hour: datetime, number: int) -> None:
    if not SubscriptionHour.objects.filter(subscription_id=pk, hour=hour).update(events=F("events") + number):
        SubscriptionHour.objects.create(subscription_id=pk, hour=hour, events=number)


def read_failed(hold: Hold, pk: int, fault: str, detail: str, at: datetime) -> None:
    fields = {"read_fault": fault, "read_detail": storable(detail, REASON_CHARS), "last_read_at": at}
    if mine(hold).filter(pk=pk).update(version=F("version") + 1, **fields):
        announce([pk])


# --- for others ---------------------------------------------------------------------------------------------------------
def watched_session() -> Q:
    """Of sessions: those that an active subscription wants open."""
    active = Subscription.objects.filter(
        server_id=OuterRef("server_id"), identity_id=OuterRef("identity_id"), active=True
    )
    return Q(Exists(active))


def announce(pks: Collection[int], kind: str = "subscription") -> None:
    """Tell the pages once the current transaction is committed."""
    for uid, version in Subscription.objects.filter(pk__in=pks).values_list("uid", "version"):
        transaction.on_commit(partial(bus.subscription_changed, uid, version, kind), robust=True)

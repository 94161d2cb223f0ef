"""Messages to subscriptions' webhooks: their content, when they are due, and how attempts end.

A message says that a resource changed, but does not contain it. A conditional UPDATE claims an attempt, so no two
workers make the same one. If a worker dies, the attempt is repeated when its lease expires. The message keeps its id,
so the receiver can detect duplicates. Format of message and signature: Standard Webhooks (standardwebhooks.com).
"""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from servers import instance
from servers.audit.record import SYSTEM, Event, ServerRef
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome
from servers.secret import Secret
from servers.storable import storable
from sessions.enums import DeliveryState
from sessions.models import ResourceVersion, Subscription, WebhookDelivery
from sessions.subscriptions.settings import SECRET_PREFIX, host_of, opened
from sessions.subscriptions.watches import announce as notify

#: seconds to wait after each failed attempt (times TIME_SCALE); after one more failure the message is given up
DELAYS: Final = (5, 30, 120, 600, 3_600, 21_600)
#: longer than an attempt may take
LEASE: Final = timedelta(seconds=60)
#: pending messages per subscription; beyond that, the oldest is given up
PENDING: Final = 100
DUE: Final = 32
#: messages of one subscription that are sent at the same time: a slow receiver leaves room for the others
TURNS: Final = 2
DETAIL_CHARS: Final = 500
#: number of a delivery that concerns no version
TEST: Final = 0
_GONE: Final = 410
_REMOVED: Final = "The webhook was removed."
_TOO_MANY: Final = f"More than {PENDING} messages are waiting."


class Due(NamedTuple):
    """A message that is due."""

    pk: int
    subscription: int


@dataclass(frozen=True)
class Claimed:
    """An attempt that this worker has claimed. `secret` signs it; None: it cannot be read now, as `problem` says."""

    pk: int
    uid: UUID
    attempt: int
    url: str
    body: bytes
    secret: Secret | None = field(repr=False)
    problem: str = ""

    def headers(self, secret: Secret, at: datetime) -> dict[str, str]:
        stamp = str(int(at.timestamp()))
        return {
            "Content-Type": "application/json",
            "User-Agent": "mcpadmin",
            "webhook-id": str(self.uid),
            "webhook-timestamp": stamp,
            "webhook-signature": f"v1,{signature(secret, str(self.uid), stamp, self.body)}",
        }


@dataclass(frozen=True)
class Attempted:
    """How an attempt ended; `status` is None without a response."""

    status: int | None
    detail: str = ""

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def signature(secret: Secret, identity: str, stamp: str, body: bytes) -> str:
    key = base64.b64decode(secret.reveal().removeprefix(SECRET_PREFIX))
    return base64.b64encode(hmac.digest(key, f"{identity}.{stamp}.".encode() + body, hashlib.sha256)).decode()


# --- a new message ------------------------------------------------------------------------------------------------------
def announce(subscription: Subscription, version: ResourceVersion) -> None:
    """Call in the transaction that stores the version."""
    if not subscription.webhook_url:
        return
    now = timezone.now()
    WebhookDelivery.objects.create(
        subscription=subscription, number=version.number, created_at=now, next_attempt_at=now
    )
    waiting = WebhookDelivery.objects.filter(subscription=subscription, state=DeliveryState.PENDING).order_by("-pk")
    over = list(waiting.values_list("pk", flat=True)[PENDING:])
    _give_up(_pending(over), _TOO_MANY)


def drop_waiting(subscription: Subscription) -> None:
    """Drop the waiting messages of a removed webhook, so that the next one does not get them."""
    _give_up(WebhookDelivery.objects.filter(subscription=subscription, state=DeliveryState.PENDING), _REMOVED)


def _give_up(rows: QuerySet[WebhookDelivery], words: str) -> None:
    rows.update(state=DeliveryState.GIVEN_UP, next_attempt_at=None, last_detail=words)


# --- an attempt ---------------------------------------------------------------------------------------------------------
def due() -> list[Due]:
    """The first due message of each subscription. Only reads. An instance on hold sends nothing; the original does."""
    if instance.is_held():
        return []
    rows = WebhookDelivery.objects.filter(_is_due(timezone.now()), state=DeliveryState.PENDING)
    place = Window(RowNumber(), partition_by=F("subscription_id"), order_by=["next_attempt_at", "pk"])
    first = rows.annotate(place=place).filter(place__lte=TURNS)
    return [Due(*row) for row in first.order_by("next_attempt_at", "pk").values_list("pk", "subscription_id")[:DUE]]


def _is_due(now: datetime) -> Q:
    """Also matches messages due later than their pause allows: these were scheduled before the clock was set back.
    Twice the lease, because the clocks of two machines may differ."""
    due = Q(next_attempt_at__lte=now) | Q(next_attempt_at__gt=now + _pause(len(DELAYS)) + 2 * LEASE)
    for attempts in range(len(DELAYS)):
        due |= Q(attempts=attempts, next_attempt_at__gt=now + _pause(attempts) + 2 * LEASE)
    return due


def claim(pk: int) -> Claimed | None:
    """None if it is no longer due, or its webhook was removed."""
    now = timezone.now()
    taken = {"attempts": F("attempts") + 1, "next_attempt_at": now + LEASE}
    if not _pending([pk]).filter(_is_due(now)).update(**taken):
        return None
    row = WebhookDelivery.objects.select_related("subscription__server").get(pk=pk)
    url = row.subscription.webhook_url
    if not url:
        _give_up(_pending([pk]), _REMOVED)
        notify([row.subscription_id])
        return None
    try:
        secret, problem = opened(row.subscription), ""
    except SealError as error:  # a failed attempt: the key ring may be available at the next one
        secret, problem = None, str(error)
    return Claimed(row.pk, row.uid, row.attempts, url, body_of(row), secret, problem)


def body_of(row: WebhookDelivery) -> bytes:
    subscription = row.subscription
    message: dict[str, Any] = {
        "id": str(row.uid),
        "type": "webhook.test" if row.number == TEST else "resource.updated",
        "subscription": str(subscription.uid),
        "server": subscription.server.slug,
        "uri": subscription.uri,
    }
    if row.number != TEST:
        message |= _versions(subscription, row.number)
    return json.dumps(message, separators=(",", ":")).encode()


def _versions(subscription: Subscription, number: int) -> dict[str, Any]:
    """If retention has already deleted a version, only its number is included. An erased one has no digest. Receivers
    set by someone who may not read contents get no digest either: a digest of small contents confirms a guess."""
    rows = ResourceVersion.objects.filter(subscription=subscription, number__in=[number - 1, number])
    found = {row.number: row for row in rows}
    previous, row = found.get(number - 1), found.get(number)
    version: dict[str, Any] = {"number": number}
    if row is not None:
        version |= {
            "digest": _digest(subscription, row),
            "size": row.size,
            "mimeType": row.mime_type,
            "at": row.at.isoformat().replace("+00:00", "Z"),
        }
    return {"version": version, "previousDigest": _digest(subscription, previous)}


def _digest(subscription: Subscription, row: ResourceVersion | None) -> str | None:
    return row.contents_digest or None if row is not None and subscription.webhook_digests else None


# --- its end ------------------------------------------------------------------------------------------------------------
def attempted(claimed: Claimed, outcome: Attempted) -> list[Event]:
    """Record an attempt, in the writer's transaction. Returns the audit event if the message is given up."""
    given_up = not outcome.delivered and (claimed.attempt > len(DELAYS) or outcome.status == _GONE)
    rows = _pending([claimed.pk]).filter(attempts=claimed.attempt)
    if not rows.update(**_fields(claimed, outcome, given_up=given_up)):
        return []
    subscription = Subscription.objects.select_related("server", "identity").get(deliveries=claimed.pk)
    notify([subscription.pk])
    return [_given_up(subscription, claimed, outcome)] if given_up else []


def _fields(claimed: Claimed, outcome: Attempted, *, given_up: bool) -> dict[str, Any]:
    now = timezone.now()
    known = {"last_status": outcome.status, "last_detail": storable(outcome.detail, DETAIL_CHARS)}
    if outcome.delivered:
        return known | {"state": DeliveryState.DELIVERED, "delivered_at": now, "next_attempt_at": None}
    if given_up:
        return known | {"state": DeliveryState.GIVEN_UP, "next_attempt_at": None}
    return known | {"next_attempt_at": now + _pause(claimed.attempt)}


def _pause(attempts: int) -> timedelta:
    """The pause after this many attempts."""
    return timedelta(seconds=settings.TIME_SCALE * DELAYS[attempts - 1] if attempts else 0)


def _given_up(subscription: Subscription, claimed: Claimed, outcome: Attempted) -> Event:
    return Event(
        action=AuditAction.WEBHOOK_FAIL,
        outcome=AuditOutcome.FAILED,
        actor=SYSTEM,
        server=ServerRef.of(subscription.server),
        identity_name=subscription.identity.name,
        subject=subscription.uri[:300],
        details={
            "subscription": str(subscription.uid),
            "message": str(claimed.uid),
            "host": host_of(claimed.url),
            "attempts": claimed.attempt,
            "status": outcome.status,
            "detail": outcome.detail[:DETAIL_CHARS],
        },
    )


def _pending(pks: list[int]) -> Any:
    return WebhookDelivery.objects.filter(pk__in=pks, state=DeliveryState.PENDING)

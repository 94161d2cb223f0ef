"""Trims the histories of subscriptions during housekeeping: versions that each one's settings no longer keep, and the
rest by count or age."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from servers.enums import PayloadKind
from servers.models import Payload
from sessions.enums import DeliveryState
from sessions.models import ResourceVersion, Subscription, SubscriptionGap, SubscriptionHour, WebhookDelivery
from sessions.subscriptions.trimming import BATCH, delete_contents, trim

HOURS_KEPT: Final = timedelta(days=7)
DELIVERIES_KEPT: Final = 200
GAPS_KEPT: Final = 500
#: newer contents without a version may be about to get one
_SETTLED: Final = timedelta(hours=1)


def trim_all(on_progress: Callable[[], None] = lambda: None) -> int:
    """Trim every history, calling `on_progress` after each. Returns the number of deleted versions."""
    gone = 0
    for subscription in Subscription.objects.filter(newest__gt=1):
        gone += trim(subscription)
        on_progress()
    SubscriptionHour.objects.filter(hour__lt=timezone.now() - HOURS_KEPT).delete()
    for pk in Subscription.objects.values_list("pk", flat=True):
        _trim_rest(pk)
        on_progress()
    _delete_unowned()
    return gone


def _trim_rest(pk: int) -> None:
    over = WebhookDelivery.objects.filter(subscription_id=pk).exclude(state=DeliveryState.PENDING)
    _keep_first(over.order_by("-pk"), DELIVERIES_KEPT)
    closed = SubscriptionGap.objects.filter(subscription_id=pk, ended_at__isnull=False)
    _keep_first(closed.order_by("-began_at"), GAPS_KEPT)


def _keep_first(rows: "QuerySet[WebhookDelivery] | QuerySet[SubscriptionGap]", count: int) -> None:
    gone = list(rows.values_list("pk", flat=True)[count : count + BATCH])
    if gone:
        rows.model._default_manager.filter(pk__in=gone).delete()


def _delete_unowned() -> None:
    """Delete contents whose versions were deleted with their server."""
    owned = ResourceVersion.objects.filter(contents_id=OuterRef("pk"))
    settled = timezone.now() - _SETTLED
    unowned = Payload.objects.filter(~Exists(owned), kind=PayloadKind.RESOURCE, created_at__lt=settled)
    delete_contents(list(unowned.values_list("pk", flat=True)[:BATCH]))

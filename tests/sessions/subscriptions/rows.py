"""Creates subscriptions with a history directly as rows, for tests of the code that reads them. No worker watches
them."""

import hashlib
import json
from datetime import timedelta
from typing import Any

from django.utils import timezone

from servers.audit import payloads
from servers.enums import PayloadKind
from sessions.enums import SubscriptionState, VersionCause
from sessions.models import McpSession, ResourceVersion, Subscription, SubscriptionGap, SubscriptionHour


def make_subscription(session: McpSession, uri: str = "demo://notes", **fields: Any) -> Subscription:
    now = timezone.now()
    common = {"state": SubscriptionState.LISTENING, "state_since": now, "created_at": now, "created_by_name": "ada"}
    return Subscription.objects.create(server=session.server, identity=session.identity, uri=uri, **(common | fields))


def add_version(subscription: Subscription, *contents: Any, minutes_ago: float = 0, **fields: Any) -> ResourceVersion:
    """Add the next version. Each content is a text, or a content item as a server sends it."""
    items = [{"uri": subscription.uri, "text": item} if isinstance(item, str) else item for item in contents]
    text = json.dumps(items)
    at = timezone.now() - timedelta(minutes=minutes_ago)
    subscription.newest += 1
    subscription.version += 1
    subscription.event_count += 1
    subscription.changed_at = subscription.last_event_at = subscription.last_read_at = at
    subscription.save()
    told = {"number": subscription.newest, "at": at, "cause": VersionCause.UPDATED, "mime_type": "text/plain"}
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ResourceVersion.objects.create(
        subscription=subscription,
        contents=payloads.store(PayloadKind.RESOURCE, text),
        digest=digest,
        size=len(text),
        **(told | fields),
    )


def add_gap(
    subscription: Subscription, *, began: float, ended: float | None = None, changed: bool | None = None
) -> SubscriptionGap:
    """`began` and `ended` are in minutes ago. A gap without `ended` is open."""
    now = timezone.now()
    return SubscriptionGap.objects.create(
        subscription=subscription,
        began_at=now - timedelta(minutes=began),
        ended_at=None if ended is None else now - timedelta(minutes=ended),
        reason="The connection was lost.",
        changed=changed,
    )


def add_hours(subscription: Subscription, *counts: int) -> None:
    """Event counts of the newest hours, the current hour first."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    for back, events in enumerate(counts):
        SubscriptionHour.objects.create(subscription=subscription, hour=hour - timedelta(hours=back), events=events)

"""Reads one subscription: its versions merged with its gaps, a version's contents, and the differences between two."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db.models import Max, Q, QuerySet, Sum

from servers import access
from servers.audit import payloads
from servers.kit.pages import page_before
from sessions.calls import blocks as result_blocks
from sessions.enums import Desired, SubscriptionState
from sessions.models import McpSession, ResourceVersion, Subscription, SubscriptionGap, WebhookDelivery
from sessions.subscriptions.comparison import VersionDifference, compare, facts_of, raw_bytes

PAGE_SIZE: Final = 30
#: gaps on one page; a flapping server can have far more in one night
MOST_GAPS: Final = 30
#: maximum size of stored contents to show; a larger version can only be downloaded
SHOWN_BYTES: Final = 8 * 1024 * 1024
MOST_DELIVERIES: Final = 20


@dataclass(frozen=True)
class HistoryEntry:
    """A version or a gap of the history, newest first."""

    at: datetime
    version: ResourceVersion | None = None
    gap: SubscriptionGap | None = None


@dataclass(frozen=True)
class History:
    """`older`: value of ?before= for the next page. `hidden_gaps`: further gaps in this period. `stored`: the number of
    stored versions. `trimmed`: this is the last page, and older versions are no longer stored."""

    entries: list[HistoryEntry]
    older: int | None
    first: bool
    hidden_gaps: int = 0
    stored: int = 0
    trimmed: bool = False


def history(subscription: Subscription, before: int | None = None) -> History:
    versions = subscription.versions.all()
    newer = versions.filter(number__gte=before) if before is not None else versions.none()
    upper = newer.order_by("number").values_list("at", flat=True).first()
    page = page_before(versions, "number", before, PAGE_SIZE)
    gaps = _gaps(subscription, page.rows[-1].at if page.older is not None else None, upper)
    shown_gaps = list(gaps[:MOST_GAPS])
    hidden = gaps.count() - MOST_GAPS if len(shown_gaps) == MOST_GAPS else 0
    entries = [HistoryEntry(item.at, version=item) for item in page.rows]
    entries += [HistoryEntry(gap.began_at, gap=gap) for gap in shown_gaps]
    entries.sort(key=lambda entry: (entry.at, entry.gap is not None), reverse=True)
    trimmed = page.older is None and bool(page.rows) and page.rows[-1].number > 1
    return History(entries, page.older, page.first, hidden, versions.count(), trimmed)


def _gaps(subscription: Subscription, lower: datetime | None, upper: datetime | None) -> QuerySet[SubscriptionGap]:
    """Gaps that began in the page's period."""
    gaps = subscription.gaps.all()
    gaps = gaps if lower is None else gaps.filter(began_at__gte=lower)
    gaps = gaps if upper is None else gaps.filter(began_at__lt=upper)
    return gaps.order_by("-began_at")


def mark(subscription: Subscription) -> str:
    """Changes whenever the page would. The live socket sends it, and the page compares it with its own."""
    gap = subscription.gaps.order_by("-pk").values_list("pk", "ended_at", "changed").first() or ()
    sent = subscription.deliveries.aggregate(newest=Max("pk"), attempts=Sum("attempts"), over=Max("delivered_at"))
    parts = (subscription.version, subscription.newest, subscription.event_count, *gap, *sent.values())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def open_gap(subscription: Subscription) -> SubscriptionGap | None:
    return subscription.gaps.filter(ended_at=None).first()


def version(subscription: Subscription, number: int | None) -> ResourceVersion | None:
    """The version with that number; the newest one for None."""
    found: QuerySet[ResourceVersion] = subscription.versions.select_related("contents")
    return found.filter(number=number).first() if number is not None else found.order_by("-number").first()


def before_version(item: ResourceVersion) -> ResourceVersion | None:
    """The nearest older version that is still stored."""
    older = ResourceVersion.objects.filter(subscription=item.subscription_id, number__lt=item.number)
    return older.select_related("contents").order_by("-number").first()


# --- contents ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Contents:
    """The array `contents` as stored, or `missing`: why there is nothing to show."""

    items: list[Any] | None
    missing: str = ""


def contents(item: ResourceVersion, *, whole: bool = False) -> Contents:
    """`whole`: return contents of any size, for a download."""
    if item.contents.erased_at is not None:
        return Contents(None, f"The content of version {item.number} was erased.")
    if not whole and item.contents.size > SHOWN_BYTES:
        return Contents(None, f"Version {item.number} is too large to show here. Download it instead.")
    text = payloads.read(item.contents)
    try:
        items = json.loads(text or "")
    except (ValueError, RecursionError):
        return Contents(None, f"The content of version {item.number} cannot be read. Download it instead.")
    return Contents(items if isinstance(items, list) else [items])


@dataclass(frozen=True)
class ShownVersion:
    """A version as the page shows it: compared with another one, and by itself."""

    version: ResourceVersion
    against: ResourceVersion | None
    blocks: list[result_blocks.Block]
    difference: VersionDifference | None = None
    missing: str = ""
    gaps: Sequence[SubscriptionGap] = ()


def shown(item: ResourceVersion, against: ResourceVersion | None) -> ShownVersion:
    new = contents(item)
    gaps = _between(item, against)
    if new.items is None:
        return ShownVersion(item, against, [], missing=new.missing, gaps=gaps)
    blocks = result_blocks.blocks_of([{"type": "resource", "resource": one} for one in new.items])
    if against is None:
        return ShownVersion(item, None, blocks)
    old = contents(against)
    if old.items is None:
        return ShownVersion(item, against, blocks, missing=old.missing, gaps=gaps)
    return ShownVersion(item, against, blocks, compare(old.items, new.items, others=True), gaps=gaps)


def _between(item: ResourceVersion, against: ResourceVersion | None) -> list[SubscriptionGap]:
    """Gaps between the two versions, when a change could have been missed."""
    if against is None:
        return []
    first, last = sorted((against.at, item.at))
    inside = Q(began_at__gte=first, began_at__lt=last)
    return list(SubscriptionGap.objects.filter(inside, subscription=item.subscription_id).order_by("-began_at")[:3])


@dataclass(frozen=True)
class VersionFile:
    name: str
    data: bytes


def file_of(item: ResourceVersion, index: int | None) -> VersionFile | None:
    """One content as raw bytes or, for index None, the JSON array of all. None if it does not exist."""
    if index is None:
        text = payloads.read(item.contents)
        return (
            None if text is None else VersionFile(f"version-{item.number}.json", text.encode("utf-8", "surrogatepass"))
        )
    items = contents(item, whole=True).items or []
    return _raw(item.number, index, items[index]) if index < len(items) else None


def _raw(number: int, index: int, one: Any) -> VersionFile:
    facts = facts_of(one)
    name = f"version-{number}-{index + 1}"
    if facts.kind == "text":
        return VersionFile(f"{name}.txt", facts.text.encode("utf-8", "surrogatepass"))
    raw = raw_bytes(one["blob"])
    return VersionFile(f"{name}.bin", one["blob"].encode("utf-8", "surrogatepass") if raw is None else raw)


# --- state
# ---------------------------------------------------------------------------------------------------------------
def session_of(subscription: Subscription) -> McpSession | None:
    found = McpSession.objects.filter(server=subscription.server_id, identity=subscription.identity_id)
    return found.select_related("owner").first()


def is_own_identity(user: access.User, subscription: Subscription) -> bool:
    """Whether the user's calls use the subscription's identity. Otherwise they would subscribe with another one."""
    return access.identities_of(user).filter(pk=subscription.identity_id).exists()


def standing(subscription: Subscription, session: McpSession | None) -> str:
    """What was requested from the server and what it answered, in one sentence."""
    match subscription.state:
        case SubscriptionState.LISTENING:
            return "Subscribed; listening for updates."
        case SubscriptionState.REQUESTED:
            return "Requested; not confirmed by the server yet."
        case SubscriptionState.REFUSED:
            return "The server refused the subscription."
        case SubscriptionState.LOST:
            return "The server confirmed the subscription, then ended the stream."
        case SubscriptionState.ENDED:
            return "Unsubscribed. The history is kept."
        case _:
            return obstacle(subscription, session) or "Subscribes as soon as the session is ready."


def obstacle(subscription: Subscription, session: McpSession | None) -> str:
    """What keeps the session closed until a person changes it; empty if nothing."""
    if subscription.server.archived_at is not None:
        return "The server is archived. Restore and enable it to continue."
    if not subscription.server.enabled:
        return "The server is disabled. Enable it to continue."
    if session is not None and session.paused:
        return "The session is paused. Resume it to continue."
    if session is not None and session.desired == Desired.CLOSED:
        return "The session is disconnected. Connect it to continue."
    return ""


def read_automatically(subscription: Subscription) -> bool:
    """Whether the worker reads the resource as soon as it can: without notifications it does so only at intervals."""
    silent = subscription.state in (SubscriptionState.REFUSED, SubscriptionState.LOST)
    return subscription.active and (not silent or bool(settings.RESOURCE_POLL_SECONDS))


def followers(subscription: Subscription) -> int:
    """The number of agents that follow the resource through this subscription. Ending it also ends it for them."""
    here = Q(session__isnull=False, session__ended_at=None) | Q(stream__isnull=False)
    return subscription.agent_follows.filter(here).count()


def deliveries(subscription: Subscription) -> list[WebhookDelivery]:
    return list(subscription.deliveries.order_by("-pk")[:MOST_DELIVERIES])

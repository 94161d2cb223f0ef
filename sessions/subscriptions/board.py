"""Reads subscriptions for the board: pages of rows, totals, and 24 hours of events as a line. Only reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from servers import access
from servers.enums import IdentityKind
from servers.models import Server
from servers.numbers import whole_number
from sessions.enums import SubscriptionState
from sessions.models import Subscription, SubscriptionGap, SubscriptionHour
from sessions.subscriptions.sparkline import HOURS, Sparkline, sparkline

PAGE_SIZE = 50
ATTENTION, ALL = "attention", "all"
_TROUBLED = (SubscriptionState.REFUSED, SubscriptionState.LOST)


@dataclass(frozen=True)
class Filters:
    """Empty means any, except for `show`, where it means active subscriptions."""

    server: str = ""
    show: str = ""
    text: str = ""

    def apply(self, rows: QuerySet[Subscription]) -> QuerySet[Subscription]:
        rows = rows.filter(server__slug=self.server) if self.server else rows
        if self.text:
            words = Q(uri__icontains=self.text) | Q(title__icontains=self.text) | Q(server__name__icontains=self.text)
            rows = rows.filter(words)
        return rows.filter(self._shown())

    def _shown(self) -> Q:
        if self.show == ALL:
            return Q()
        if self.show == ATTENTION:
            return troubled()
        return Q(state=self.show) if self.show in SubscriptionState.values else Q(active=True)


@dataclass(frozen=True)
class BoardRow:
    subscription: Subscription
    gap: SubscriptionGap | None
    spark: Sparkline


@dataclass(frozen=True)
class BoardPage:
    """`older` is the value of ?before= for the next page, "" on the last one."""

    rows: list[BoardRow]
    older: str
    first: bool


def subscriptions(user: access.User, servers: QuerySet[Server]) -> QuerySet[Subscription]:
    """Subscriptions of a person's own identity are visible to that person and to users who may see all."""
    own = Q(identity__user_id=user.pk)
    seen = access.seen_of_people(user, Q(identity__kind=IdentityKind.PERSONAL), own)
    return Subscription.objects.filter(seen, server__in=servers).select_related("server", "identity")


def troubled() -> Q:
    """Active and in need of attention: refused, lost, with an open gap, or with a failed read."""
    gap = Exists(SubscriptionGap.objects.filter(subscription=OuterRef("pk"), ended_at=None))
    return Q(active=True) & (Q(state__in=_TROUBLED) | ~Q(read_fault="") | Q(gap))


# --- pages -------------------------------------------------------------------------------------------------------------
def board(user: access.User, servers: QuerySet[Server], filters: Filters, before: str = "") -> BoardPage:
    """Most recently changed first; a subscription that never changed counts from its creation."""
    rows = filters.apply(subscriptions(user, servers)).annotate(moved=Coalesce("changed_at", "created_at"))
    cursor = _cursor(before)
    if cursor is not None:
        at, pk = cursor
        rows = rows.filter(Q(moved__lt=at) | Q(moved=at, pk__lt=pk))
    found = list(rows.order_by("-moved", "-pk")[: PAGE_SIZE + 1])
    shown = found[:PAGE_SIZE]
    older = _cursor_word(shown[-1]) if len(found) > PAGE_SIZE else ""
    return BoardPage(_rows(shown), older, cursor is None)


def _rows(found: Sequence[Subscription]) -> list[BoardRow]:
    gaps = {gap.subscription_id: gap for gap in SubscriptionGap.objects.filter(subscription__in=found, ended_at=None)}
    now = timezone.now()
    hours: dict[int, dict[datetime, int]] = {}
    since = now - timedelta(hours=HOURS)
    for row in SubscriptionHour.objects.filter(subscription__in=found, hour__gt=since):
        hours.setdefault(row.subscription_id, {})[row.hour] = row.events
    return [BoardRow(item, gaps.get(item.pk), sparkline(hours.get(item.pk, {}), now)) for item in found]


def sparkline_of(subscription: Subscription) -> Sparkline:
    return _rows([subscription])[0].spark


def _cursor(word: str) -> tuple[datetime, int] | None:
    moment, _, digits = word.rpartition("~")
    if (number := whole_number(digits)) is None:
        return None
    try:
        at = parse_datetime(moment)
    except ValueError:  # well-formed but impossible, such as 30 February
        return None
    return (at, number) if at is not None and at.tzinfo is not None else None


def _cursor_word(subscription: Any) -> str:
    return f"{subscription.moved.isoformat()}~{subscription.pk}"


# --- numbers -----------------------------------------------------------------------------------------------------------
def numbers(user: access.User, servers: QuerySet[Server]) -> Mapping[str, int]:
    seen = subscriptions(user, servers)
    rows = seen.filter(active=True)
    found = rows.aggregate(active=Count("pk"), listening=Count("pk", filter=Q(state=SubscriptionState.LISTENING)))
    since = timezone.now() - timedelta(hours=HOURS)
    hours = SubscriptionHour.objects.filter(subscription__in=seen.values("pk"), hour__gt=since)
    found["events"] = hours.aggregate(total=Sum("events"))["total"] or 0
    found["attention"] = rows.filter(troubled()).count()
    return found


def server_choices(user: access.User, servers: QuerySet[Server]) -> list[tuple[str, str]]:
    """Servers that have a subscription."""
    having = servers.filter(pk__in=subscriptions(user, servers).values("server_id")).order_by("name")
    return list(having.values_list("slug", "name"))

"""The numbers of the overview: a handful of bounded queries, whatever the size of the tables."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from servers import access
from servers.models import Server
from sessions.domain import call_rows
from sessions.domain.diagnosis import Explanation, explain
from sessions.enums import CallState, Desired, SessionState
from sessions.models import Call, McpSession, Worker
from sessions.protocol.methods import COMPLETE

_NOT_SUCCEEDED = [
    state for state in CallState if state.final and state not in (CallState.SUCCEEDED, CallState.CANCELLED)
]


@dataclass(frozen=True)
class Attention:
    server: Server
    explanation: Explanation
    #: "sign_in" or "sign_in_again" where that is what helps
    condition: str
    #: of the reader's own identity
    own: bool


def numbers(user: access.User, servers: QuerySet[Server]) -> dict[str, Any]:
    """Counts of servers, of the calls of the last 24 hours and of live workers."""
    now, mine = timezone.now(), Q(sessions__identity__in=access.identities_of(user))
    found = servers.filter(archived_at=None).aggregate(
        switched_on=Count("id", filter=Q(enabled=True), distinct=True),
        switched_off=Count("id", filter=Q(enabled=False), distinct=True),
        ready=Count("id", filter=mine & Q(enabled=True, sessions__state=SessionState.READY), distinct=True),
    )
    found |= Call.objects.filter(call_rows.seen(user), created_at__gt=now - timedelta(hours=24)).aggregate(
        calls=Count("id"),
        running=Count("id", filter=Q(state__in=[CallState.REQUESTED, CallState.SENT])),
        failed=Count("id", filter=Q(state__in=_NOT_SUCCEEDED)),
        unknown=Count("id", filter=Q(state=CallState.OUTCOME_UNKNOWN)),
    )
    alive = Worker.objects.filter(heartbeat_at__gt=now - timedelta(seconds=settings.STALE_SECONDS))
    found["workers"] = alive.count()
    found["held"] = McpSession.objects.filter(owner__in=alive).count()
    found["failed_percent"] = round(100 * found["failed"] / found["calls"], 1) if found["calls"] else 0
    return found


def attention(user: access.User, servers: QuerySet[Server], count: int = 8) -> list[Attention]:
    """Sessions that should be open and are not."""
    failing = (
        McpSession.objects.filter(identity__in=access.identities_of(user))
        .filter(server__in=servers, desired=Desired.OPEN, server__enabled=True)
        .exclude(fault="")
        .exclude(state=SessionState.READY)
        .select_related("server", "identity")
        .order_by("-fault_at")[:count]
    )
    return [
        Attention(
            item.server,
            explain(item.fault, item.fault_detail, item.server),
            item.shown_condition,
            item.identity.user_id is not None,
        )
        for item in failing
    ]


def latest_calls(user: access.User, servers: QuerySet[Server], count: int = 10) -> list[Call]:
    """What a form asked for by itself (completions) is left to the history."""
    calls = Call.objects.filter(call_rows.seen(user), server__in=servers).exclude(method=COMPLETE)
    return list(calls.select_related("server")[:count])

"""The numbers of the overview: a fixed number of queries."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from servers import access
from servers.models import AuditHead, Server
from sessions.calls import statements
from sessions.connections.diagnosis import Explanation, explain
from sessions.connections.worker_board import seen_sessions
from sessions.enums import CallState, Desired, SessionState
from sessions.mcp.core.methods import COMPLETE
from sessions.models import Call, McpSession, Worker

_NOT_SUCCEEDED = [
    state for state in CallState if state.final and state not in (CallState.SUCCEEDED, CallState.CANCELLED)
]


@dataclass(frozen=True)
class Attention:
    server: Server
    explanation: Explanation
    #: "sign_in" or "sign_in_again" if that helps
    condition: str
    #: of the reader's own identity
    own: bool


def mark() -> str:
    """Differs whenever anything that the overview counts has changed: a page with the current mark is up to date."""
    head = AuditHead.objects.values_list("hash", flat=True).first() or ""
    return f"{head[:16]}.{Worker.objects.living().count()}"


def numbers(user: access.User, servers: QuerySet[Server]) -> dict[str, Any]:
    """Counts of what this user may see: servers, calls of the last 24 hours, live workers and their sessions."""
    visible = Q(server__in=servers) | (Q(server=None) if access.may(user, "view") else Q(pk=None))
    now, mine = timezone.now(), Q(sessions__identity__in=access.identities_of(user))
    found = servers.filter(archived_at=None).aggregate(
        switched_on=Count("id", filter=Q(enabled=True), distinct=True),
        switched_off=Count("id", filter=Q(enabled=False), distinct=True),
        ready=Count("id", filter=mine & Q(enabled=True, sessions__state=SessionState.READY), distinct=True),
    )
    found |= Call.objects.filter(visible, statements.seen(user), created_at__gt=now - timedelta(hours=24)).aggregate(
        calls=Count("id"),
        running=Count("id", filter=Q(state__in=[CallState.REQUESTED, CallState.SENT])),
        failed=Count("id", filter=Q(state__in=_NOT_SUCCEEDED)),
        unknown=Count("id", filter=Q(state=CallState.OUTCOME_UNKNOWN)),
    )
    alive = Worker.objects.living()
    found["workers"] = alive.count() if access.may(user, "view") else 0
    found["held"] = seen_sessions(user).filter(owner__in=alive, server__in=servers).count()
    found["failed_percent"] = round(100 * found["failed"] / found["calls"], 1) if found["calls"] else 0
    return found


def attention(user: access.User, servers: QuerySet[Server], count: int = 8) -> list[Attention]:
    """Sessions that should be open, are not, and show a fault."""
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
    """Without completions, which a form requests by itself: only the history lists them."""
    calls = Call.objects.filter(statements.seen(user), server__in=servers).exclude(method=COMPLETE)
    return list(calls.select_related("server")[:count])

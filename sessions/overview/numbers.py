"""The numbers of the overview: a fixed number of queries."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Coalesce
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
    now, mine = timezone.now(), Q(sessions__identity__in=access.identities_of(user))
    found = servers.filter(archived_at=None).aggregate(
        switched_on=Count("id", filter=Q(enabled=True), distinct=True),
        switched_off=Count("id", filter=Q(enabled=False), distinct=True),
        ready=Count("id", filter=mine & Q(enabled=True, sessions__state=SessionState.READY), distinct=True),
    )
    states = _states_since(user, now - timedelta(hours=24))
    found |= {
        "calls": sum(states.values()),
        "running": sum(states.get(state, 0) for state in (CallState.REQUESTED, CallState.SENT)),
        "failed": sum(states.get(state, 0) for state in _NOT_SUCCEEDED),
        "unknown": states.get(CallState.OUTCOME_UNKNOWN, 0),
    }
    alive = Worker.objects.living()
    found["workers"] = alive.count() if access.may(user, "view") else 0
    found["held"] = seen_sessions(user).filter(owner__in=alive, server__in=servers).count()
    found["failed_percent"] = round(100 * found["failed"] / found["calls"], 1) if found["calls"] else 0
    return found


def _states_since(user: access.User, since: datetime) -> dict[str, int]:
    """How many calls are in each state. For who sees all calls, the index of states alone answers."""
    if not access.may(user, "view"):
        return {}
    first = Call.objects.filter(created_at__gt=since).order_by("created_at", "pk").values_list("pk", flat=True).first()
    if first is None:
        return {}
    calls = Call.objects.filter(statements.seen(user), state__in=CallState.values, pk__gte=first)
    return dict(calls.order_by().values_list("state").annotate(Count("pk")))


def attention(user: access.User, servers: QuerySet[Server], count: int = 8) -> list[Attention]:
    """Sessions that should be open, are not, and show a fault."""
    failing = (
        _at(servers, McpSession.objects.filter(identity__in=access.identities_of(user)))
        .filter(desired=Desired.OPEN, server__enabled=True)
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
    calls = _at(servers, Call.objects.filter(statements.seen(user))).exclude(method=COMPLETE)
    return list(calls.select_related("server")[:count])


def _at(servers: QuerySet[Server], rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows of these servers, compared one by one: with `server__in` SQLite reads those of all servers by an index, and
    sorts or joins a million of them."""
    return rows.alias(at=Coalesce("server_id", 0)).filter(at__in=servers.values("pk"))

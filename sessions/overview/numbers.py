"""The numbers of the overview: a fixed number of queries."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Max, QuerySet
from django.db.models.functions import Coalesce

from servers import access
from servers.enums import SignsInAs
from servers.models import AuditHead, Server
from sessions.calls import visibility
from sessions.connections.diagnosis import Explanation, explain
from sessions.connections.lifecycle import IN_SERVICE
from sessions.connections.worker_board import seen_sessions
from sessions.enums import CallState, Desired, SessionState
from sessions.mcp.core.methods import COMPLETE
from sessions.models import AgentSession, Call, McpSession, Worker
from sessions.overview.server_list import FAILED

#: any others are shown as a number with a link to the list
FAILING_SHOWN = 8


@dataclass(frozen=True)
class Failing:
    """A session that should be open but is not, and why."""

    server: Server
    session: McpSession
    explanation: Explanation


@dataclass(frozen=True)
class Attention:
    """What needs this reader's attention. `waiting_sessions`: sessions that no worker has claimed."""

    failing: list[Failing]
    more_failing: int
    waiting_sessions: int
    without_identity: list[Server]


def mark() -> str:
    """Differs whenever anything that the overview counts has changed: a page with the current mark is up to date."""
    head = AuditHead.objects.values_list("hash", flat=True).first() or ""
    return f"{head[:16]}.{Worker.objects.living().count()}"


def agents_mark() -> str:
    """The same for the *Agents* page: its calls, its tokens, and the requests and streams of sessions."""
    head = AuditHead.objects.values_list("hash", flat=True).first() or ""
    found = AgentSession.objects.filter(ended_at=None).aggregate(
        Count("pk"), Max("last_seen_at"), Count("streams_until")
    )
    return ".".join([head[:16], *("" if value is None else str(value) for value in found.values())])


def numbers(user: access.User, servers: QuerySet[Server]) -> dict[str, int]:
    """Counts of what this user may see: servers, live workers and their sessions."""
    active = servers.filter(archived_at=None)
    switched: dict[bool, int] = dict(active.order_by().values_list("enabled").annotate(Count("pk")))
    mine = McpSession.objects.filter(identity__in=access.identities_of(user), state=SessionState.READY)
    alive = Worker.objects.living()
    may_view = access.may(user, "view")
    return {
        "switched_on": switched.get(True, 0),
        "switched_off": switched.get(False, 0),
        "ready": mine.filter(server__enabled=True, server__archived_at=None).count() if may_view else 0,
        "workers": alive.count() if may_view else 0,
        "held": seen_sessions(user).filter(owner__in=alive).count() if may_view else 0,
    }


def attention(user: access.User, servers: QuerySet[Server]) -> Attention:
    sessions = McpSession.objects.filter(identity__in=access.identities_of(user))
    broken = _at(servers, sessions).filter(FAILED, server__enabled=True, server__archived_at=None)
    found = list(broken.select_related("server", "identity").order_by("-fault_at")[: FAILING_SHOWN + 1])
    more = broken.count() - FAILING_SHOWN if len(found) > FAILING_SHOWN else 0
    waiting = seen_sessions(user).filter(IN_SERVICE, owner=None, desired=Desired.OPEN, paused=False)
    personal = servers.filter(enabled=True, archived_at=None, signs_in_as=SignsInAs.PERSONAL)
    if not access.may(user, "call_tool"):  # a personal identity requires it
        personal = personal.none()
    return Attention(
        failing=[
            Failing(session.server, session, explain(session.fault, session.fault_detail, session.server))
            for session in found[:FAILING_SHOWN]
        ],
        more_failing=more,
        waiting_sessions=waiting.count() if access.may(user, "view") else 0,
        without_identity=list(personal.exclude(pk__in=access.own_identities(user).values("server_id"))[:FAILING_SHOWN]),
    )


def running_calls(user: access.User, servers: QuerySet[Server]) -> int:
    """The number of running calls, no matter when they began, without completions."""
    calls = Call.objects.filter(visibility.visible_q(user), state__in=[state for state in CallState if not state.final])
    return _at(servers, calls).exclude(method=COMPLETE).count()


def latest_calls(user: access.User, servers: QuerySet[Server], count: int = 10) -> list[Call]:
    """The latest calls, without completions, which forms request automatically: only the history lists those."""
    calls = _at(servers, Call.objects.filter(visibility.visible_q(user))).exclude(method=COMPLETE)
    return list(calls.select_related("server")[:count])


def _at(servers: QuerySet[Server], rows: QuerySet[Any]) -> QuerySet[Any]:
    """The rows of these servers, filtered row by row: with `server__in`, SQLite would read the rows of all servers
    through an index, and sort or join a million of them."""
    return rows.alias(at=Coalesce("server_id", 0)).filter(at__in=servers.values("pk"))

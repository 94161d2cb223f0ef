"""What the *Agents* page shows about connected agents."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from servers import access
from servers.models import AgentToken
from sessions.calls import visibility
from sessions.models import AgentCall, AgentSession, Call
from sessions.statistics.figures import NEUTRAL, SUCCEEDED

#: most tokens, and most sessions, on a page
SHOWN = 200
#: an agent without a request for this long is no longer shown as connected, and older calls are not counted
RECENT = timedelta(hours=1)
_ERROR = ~Q(state__in=SUCCEEDED | NEUTRAL)


@dataclass(frozen=True)
class Connected:
    """`calls` are those of the last hour that the user may see; `last` is the newest."""

    session: AgentSession
    streaming: bool
    calls: int
    errors: int
    last: Call | None


def connected(user: access.User, rows: QuerySet[AgentToken]) -> list[Connected]:
    """Sessions of the active tokens among these, most recent request first. Three queries."""
    now = timezone.now()
    mine = AgentSession.objects.filter(
        token__in=rows.filter(revoked_at=None, expires_at__gt=now).order_by().values("pk")
    )
    recent = mine.filter(ended_at=None, last_seen_at__gt=now - RECENT)
    sessions = list(recent.select_related("token", "server", "bundle").order_by("-last_seen_at")[:SHOWN])
    if not sessions:
        return []
    # As a range of keys, by which each session's index is ordered: a session may have made millions of earlier calls.
    since = Call.objects.filter(created_at__gt=now - RECENT).order_by("created_at").values("pk")[:1]
    first = AgentCall.objects.filter(call__gte=since).order_by("call_id").values("pk")[:1]
    calls = visibility.visible(user).filter(agent__session__in=sessions, agent__gte=first).order_by()
    counted = calls.values_list("agent__session").annotate(
        called=Count("pk"), errors=Count("pk", filter=_ERROR), last=Max("pk")
    )
    counts = {session: (called, errors, last) for session, called, errors, last in counted}
    newest = Call.objects.only("uid", "target").in_bulk([last for _, _, last in counts.values()])
    found = []
    for session in sessions:
        streaming = session.streams_until is not None and session.streams_until > now
        called, errors, last = counts.get(session.pk, (0, 0, None))
        found.append(Connected(session, streaming, called, errors, newest.get(last)))
    return found

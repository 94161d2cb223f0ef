"""What the page *Agents* shows of agents that are connected."""

from collections.abc import Collection
from datetime import timedelta

from django.utils import timezone

from servers.models import AgentToken
from sessions.models import AgentSession

SHOWN = 200
#: an agent that said nothing for so long is no longer shown as connected
RECENT = timedelta(hours=1)


def connected(rows: Collection[AgentToken]) -> list[AgentSession]:
    """Sessions of these tokens, those with the newest request first. One query."""
    mine = AgentSession.objects.filter(token__in=[token.pk for token in rows if token.state == "active"])
    recent = mine.filter(ended_at=None, last_seen_at__gt=timezone.now() - RECENT)
    return list(recent.select_related("token", "server", "bundle").order_by("-last_seen_at")[:SHOWN])

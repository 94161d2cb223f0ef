"""Topic `sign_ins`: servers whose session fell to *needs authorization* just now. In reader threads only.

Every page of those who may sign in joins it, so it carries names and the way to help, nothing that a server wrote.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.urls import reverse
from django.utils import timezone

from servers.enums import IdentityKind
from sessions.consumers.frames import Frame, encode
from sessions.domain.topics import TopicKind
from sessions.enums import SessionCondition, SessionState
from sessions.models import ConnectionEvent, McpSession

#: whoever may have missed a hint still hears of it; what is older stands on the cards
RECENT = timedelta(minutes=2)
_MOST = 50
_SIGN_IN = ("sign_in", "sign_in_again")


def frames(uids: list[UUID] | None) -> list[Frame]:
    """Of the servers named; None: of all that fell lately."""
    lately = timezone.now() - RECENT
    rows = McpSession.objects.filter(condition=SessionCondition.NEEDS_AUTH, state_since__gt=lately)
    rows = rows.filter(identity__kind=IdentityKind.SHARED, server__enabled=True, server__archived_at=None)
    rows = rows if uids is None else rows.filter(server__uid__in=uids)
    return [_frame(session) for session in rows.select_related("server", "identity").order_by("-state_since")[:_MOST]]


def _frame(session: McpSession) -> Frame:
    server, word = session.server, session.shown_condition
    settings = f"{reverse('servers:settings', args=[server.slug])}#credentials"
    row = {
        "server": str(server.uid),
        "server_name": server.name,
        "word": word,
        "url": reverse("servers:sign_in", args=[server.slug]) if word in _SIGN_IN else settings,
        "fell_at": fell_at(session).isoformat(),
    }
    return Frame(encode(TopicKind.SIGN_INS, None, "sign_in", [row]), None, str(server.uid), session.version)


def fell_at(session: McpSession) -> datetime:
    """Since when it waits for a person: further tries that end the same way, by whatever worker, are the same fall."""
    lines = ConnectionEvent.objects.filter(session=session)
    opened = lines.filter(state=SessionState.READY).first()
    waits = lines.filter(condition=SessionCondition.NEEDS_AUTH, number__gt=opened.number if opened else 0)
    first = waits.order_by("number").first()
    if first is None:
        return session.state_since
    again = opened is not None and first.at < opened.last_at  # a line that stands for several falls
    return first.last_at if again else first.at

"""Topics `sign_ins` and `own_sign_ins`: servers whose session fell to *needs authorization* just now. In reader threads only.

Every page of those who may sign in joins the first, for the shared identity, and every page the second, for its
viewer's own. They carry names and the way to help, nothing that a server wrote.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from servers.enums import IdentityKind
from sessions.consumers.frames import Audience, Frame, encode
from sessions.domain.topics import TopicKind
from sessions.enums import SessionCondition, SessionState
from sessions.models import ConnectionEvent, McpSession

#: whoever may have missed a hint still hears of it; what is older stands on the cards
RECENT = timedelta(minutes=2)
_MOST = 50
_SIGN_IN = ("sign_in", "sign_in_again")


def frames(uids: list[UUID] | None) -> list[Frame]:
    """Of the servers named; None: of all that fell lately."""
    return [_frame(session) for session in _fallen(IdentityKind.SHARED, uids)]


def own_frames(uids: list[UUID] | None) -> list[Frame]:
    """The same, each for the one whose own session it is."""
    return [_own_frame(session) for session in _fallen(IdentityKind.PERSONAL, uids)]


def _fallen(kind: IdentityKind, uids: list[UUID] | None) -> QuerySet[McpSession]:
    lately = timezone.now() - RECENT
    rows = McpSession.objects.filter(condition=SessionCondition.NEEDS_AUTH, state_since__gt=lately)
    rows = rows.filter(identity__kind=kind, server__enabled=True, server__archived_at=None)
    rows = rows if uids is None else rows.filter(server__uid__in=uids)
    return rows.select_related("server", "identity").order_by("-state_since")[:_MOST]


def _frame(session: McpSession) -> Frame:
    slug = session.server.slug
    settings = f"{reverse('servers:settings', args=[slug])}#credentials"
    row = _row(session, reverse("servers:sign_in", args=[slug]), settings)
    return Frame(encode(TopicKind.SIGN_INS, None, "sign_in", [row]), None, str(session.uid), session.version)


def _own_frame(session: McpSession) -> Frame:
    page = reverse("servers:identity", args=[session.server.slug])
    text = encode(TopicKind.OWN_SIGN_INS, None, "sign_in", [_row(session, page, page)])
    theirs = Audience(frozenset({session.identity.user_id} - {None}))
    return Frame(text, None, str(session.uid), session.version, audience=theirs)


def _row(session: McpSession, sign_in: str, otherwise: str) -> dict[str, Any]:
    server, word = session.server, session.shown_condition
    return {
        "server": str(server.uid),
        "server_name": server.name,
        "word": word,
        "url": sign_in if word in _SIGN_IN else otherwise,
        "fell_at": fell_at(session).isoformat(),
    }


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

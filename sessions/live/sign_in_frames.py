"""Topics `sign_ins` and `own_sign_ins`: servers whose session just became *needs authorization*. For reader threads.

All pages of users who may sign in join the first topic, for the shared identity. All pages join the second, for their
viewer's own identity. The frames contain names and the link that helps, but no text from a server.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from django.utils import timezone

from servers.enums import IdentityKind
from servers.kit.visible import visible_text
from sessions.enums import SessionCondition, SessionState
from sessions.live.frames import RECENT, Audience, Frame, encode
from sessions.live.topics import TopicKind
from sessions.models import ConnectionEvent, McpSession

_MOST = 50
_SIGN_IN = ("sign_in", "sign_in_again")


def frames(uids: list[UUID] | None) -> list[Frame]:
    """Frames of the named servers. None: frames of all recent cases."""
    return [_frame(session) for session in _fallen(IdentityKind.SHARED, uids)]


def own_frames(uids: list[UUID] | None) -> list[Frame]:
    """The same for personal sessions, each for its owner only."""
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
    owner = session.identity.user_id
    theirs = Audience(frozenset() if owner is None else frozenset({owner}))
    return Frame(text, None, str(session.uid), session.version, audience=theirs)


def _row(session: McpSession, sign_in: str, otherwise: str) -> dict[str, Any]:
    server, word = session.server, session.shown_condition
    return {
        "server": str(server.uid),
        "server_name": visible_text(server.name),
        "word": word,
        "url": sign_in if word in _SIGN_IN else otherwise,
        "fell_at": fell_at(session).isoformat(),
    }


def fell_at(session: McpSession) -> datetime:
    """When the session began to wait for a sign-in. Later attempts that end the same way, on any worker, do not count
    as new."""
    lines = ConnectionEvent.objects.filter(session=session)
    opened = lines.filter(state=SessionState.READY).first()
    waits = lines.filter(condition=SessionCondition.NEEDS_AUTH, number__gt=opened.number if opened else 0)
    first = waits.order_by("number").first()
    if first is None:
        return session.state_since
    again = opened is not None and first.at < opened.last_at  # this line also counts failures before the last opening
    return first.last_at if again else first.at

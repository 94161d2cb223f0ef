"""Legacy sessions of agents as rows, so that any web process serves any request."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from servers.audit.batches import Batches
from servers.storable import storable
from sessions import hints
from sessions.agents.endpoints import Entry
from sessions.mcp.core.capabilities import declares, elicitation_modes
from sessions.mcp.server.legacy import Opening
from sessions.models import AgentAttachment, AgentCall, AgentSession

#: a session without a request for this long has ended
IDLE: Final = timedelta(hours=24)
#: an ended session is deleted after this time if no call refers to it. Web processes cache sessions for a few seconds
UNUSED: Final = timedelta(minutes=10)
#: for one token; the one that has been idle longest is ended
MOST_SESSIONS: Final = 100
SEEN_EVERY: Final = timedelta(minutes=1)
_PROGRAM_CHARS: Final = 120
#: ended sessions that are read at once
_READ: Final = 2_000


def program_of(client: dict[str, Any]) -> str:
    """Name and version as the agent gave them. Hostile until escaped."""
    words = (client.get("title") or client.get("name"), client.get("version"))
    named = " ".join(word for word in words if isinstance(word, str))
    return storable(named, _PROGRAM_CHARS)


def open_session(entry: Entry, opening: Opening) -> AgentSession:
    """Open a session. Ends the oldest ones if the token has too many."""
    token, now = entry.principal.token, timezone.now()
    with transaction.atomic():
        mine = AgentSession.objects.filter(token_id=token.pk, ended_at=None).order_by("-last_seen_at")
        surplus = list(mine.values_list("uid", flat=True)[MOST_SESSIONS - 1 :])
        if surplus:
            AgentSession.objects.filter(uid__in=surplus).update(ended_at=now)
        session = AgentSession.objects.create(
            key=secrets.token_urlsafe(32),
            token_id=token.pk,
            **entry.place.owner,
            revision=opening.revision,
            capabilities=_asked_of(opening.capabilities),
            program=program_of(opening.client),
            created_at=now,
            last_seen_at=now,
        )
    _end_streams(surplus)
    return session


def _asked_of(declared: dict[str, Any]) -> dict[str, Any]:
    """The capabilities that questions need. The rest is irrelevant here, and may be anything."""
    found: dict[str, Any] = {}
    if modes := elicitation_modes(declared):
        found["elicitation"] = {mode: {} for mode in sorted(modes)}
    if declares(declared, "sampling"):
        found["sampling"] = {name: {} for name in ("context", "tools") if declares(declared, "sampling", name)}
    return found | ({"roots": {}} if declares(declared, "roots") else {})


def set_log_level(session: AgentSession, level: str) -> None:
    AgentSession.objects.filter(pk=session.pk).update(log_level=level)
    hints.agent_session_changed()


def calls_of(session_pk: int) -> QuerySet[AgentCall]:
    """The calls that this session started, and those it joined, which another session of the same token started."""
    joined = AgentAttachment.objects.filter(session_id=session_pk).values("call_id")
    return AgentCall.objects.filter(Q(session_id=session_pk) | Q(pk__in=joined))


def end_session(session: AgentSession) -> None:
    AgentSession.objects.filter(pk=session.pk, ended_at=None).update(ended_at=timezone.now())
    _end_streams([session.uid])


def _end_streams(ended: Iterable[UUID]) -> None:
    """Make the streams of ended sessions check their session again, in whatever web process they are."""
    for uid in ended:
        hints.agent_session_ended(uid)


def seen(session: AgentSession) -> None:
    """Remember the request, at most once a minute."""
    now = timezone.now()
    if session.last_seen_at < now - SEEN_EVERY:
        AgentSession.objects.filter(pk=session.pk).update(last_seen_at=now)
        session.last_seen_at = now


def end_idle() -> int:
    """End sessions without a recent request, and delete those that ended long ago. Returns how many were deleted. Waits
    for the writer."""
    now = timezone.now()
    idle = AgentSession.objects.filter(ended_at=None, last_seen_at__lt=now - IDLE)
    ended = list(idle.values_list("uid", flat=True))
    idle.update(ended_at=now)
    _end_streams(ended)
    called = Exists(AgentCall.objects.filter(session=OuterRef("pk")))
    over = AgentSession.objects.filter(Q(ended_at__lt=now - IDLE) | ~called, ended_at__lt=now - UNUSED)
    batches, deleted = Batches(), 0
    while keys := list(over.order_by("ended_at").values_list("pk", flat=True)[:_READ]):
        batches.each(keys, _delete)
        deleted += len(keys)
    return deleted


def _delete(keys: Sequence[int]) -> None:
    AgentSession.objects.filter(pk__in=keys).delete()

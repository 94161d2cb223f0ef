"""The data of servers, sessions and calls for pages and the live socket: rows as plain JSON values, never results."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Prefetch, Q, QuerySet

from servers import access
from servers.enums import DefinitionKind, IdentityKind, SignsInAs
from servers.models import Definition, Server
from sessions.calls import statements, visibility
from sessions.calls.session_pausing import RETRYABLE
from sessions.enums import UNSENT, CallState, Desired, SessionCondition, SessionState
from sessions.models import Call, McpSession
from sessions.overview.shown import shown

_OPEN_CALLS = [*UNSENT, CallState.SENT]
_MISSED_CALLS = 20
_CALL_TONES = {
    CallState.HELD: "warn",
    CallState.REQUESTED: "run",
    CallState.SENT: "run",
    CallState.SUCCEEDED: "ok",
    CallState.TOOL_ERROR: "bad",
    CallState.RPC_ERROR: "bad",
    CallState.FAILED: "bad",
    CallState.REFUSED: "viol",
}


@dataclass(frozen=True)
class ServerImpact:
    """What disabling, archiving or deleting a server affects."""

    session_word: str
    open_calls: int
    calls: int
    definitions: int
    credentials: int
    subscriptions: int


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


# --- sessions and servers ------------------------------------------------------------------------------------------
def session_word(server: Server, session: McpSession | None) -> tuple[str, str]:
    """(word, tone) of the state pill."""
    look = shown(server, session).look
    return look.word, look.tone


def phase(session: McpSession | None) -> str:
    """Determines which session commands are offered: closed, paused, waiting (for the next attempt) or open."""
    if session is None or (session.desired == Desired.CLOSED and not session.paused):
        return "closed"
    if session.paused:
        return "paused"
    waits = session.state == SessionState.DISCONNECTED and session.condition in RETRYABLE
    return "waiting" if waits else "open"


def server_row(server: Server, session: McpSession | None) -> dict[str, Any]:
    """The JSON row of topics `servers` and `server.<uid>`."""
    now = shown(server, session)
    row = {
        "server": str(server.uid),
        "slug": server.slug,
        "name": server.name,
        "enabled": server.enabled,
        "archived": server.archived_at is not None,
        "word": now.look.word,
        "tone": now.look.tone,
        "shown": now.key,
        "panel": {"title": now.title, "text": now.text},
        "version": 0,
        "phase": phase(session),
        "desired": Desired.CLOSED.value,
        "state": SessionState.DISCONNECTED.value,
        "condition": SessionCondition.NONE.value,
        "since": _time(server.created_at),
    }
    return row if session is None else row | _session_part(session)


def _session_part(session: McpSession) -> dict[str, Any]:
    return {
        "version": session.version,
        "desired": session.desired,
        "state": session.state,
        "condition": session.condition,
        "since": _time(session.state_since),
        "fault": session.fault,
        "revision": session.revision,
        "latency_ms": session.latency_ms,
        "next_retry_at": _time(session.next_retry_at),
    }


def with_session(servers: QuerySet[Server], user: access.User | None = None) -> QuerySet[Server]:
    """Each server with the session of the identity that `user` uses in `seen_sessions`, including its identity
    and owner. Without `user`, the session of the shared identity. Two queries for any number of servers."""
    identities = access.identities_of(user)
    sessions = McpSession.objects.filter(identity__in=identities).select_related("identity", "owner")
    return servers.prefetch_related(Prefetch("sessions", queryset=sessions, to_attr="seen_sessions"))


def session_of(server: Server) -> McpSession | None:
    """The session of a server read by `with_session`."""
    sessions: list[McpSession] = server.seen_sessions  # type: ignore[attr-defined]  # set by Prefetch(to_attr)
    for session in sessions:
        session.server = server
        return session
    return None


def servers_with_sessions(uids: Iterable[UUID] | None = None) -> list[tuple[Server, McpSession | None]]:
    """Servers and sessions as seen by users without a personal identity."""
    servers = Server.objects.all() if uids is None else Server.objects.filter(uid__in=list(uids))
    return [(server, session_of(server)) for server in with_session(servers)]


def own_sessions(uids: Iterable[UUID] | None = None) -> list[McpSession]:
    """The sessions of personal identities in use: at these servers, or at all servers for None."""
    counting = McpSession.objects.filter(identity__kind=IdentityKind.PERSONAL, identity__ended_at=None).exclude(
        server__signs_in_as=SignsInAs.SHARED
    )
    found = counting if uids is None else counting.filter(server__uid__in=list(uids))
    return list(found.select_related("server", "identity", "owner"))


def dependents(user: access.User, server: Server) -> ServerImpact:
    """Personal sessions of other people are not counted for a user who may not see them."""
    session = server.sessions.filter(identity__kind=IdentityKind.SHARED).first()
    own, personal = Q(identity__user_id=user.pk), Q(identity__kind=IdentityKind.PERSONAL)
    subscriptions = server.subscriptions.filter(access.seen_of_people(user, personal, own))
    calls = server.calls.filter(visibility.visible_q(user)).aggregate(
        all=Count("id"), open=Count("id", filter=Q(state__in=_OPEN_CALLS))
    )
    return ServerImpact(
        session_word=session_word(server, session)[0],
        open_calls=calls["open"],
        calls=calls["all"],
        definitions=server.definitions.filter(removed_at=None, identity__kind=IdentityKind.SHARED).count(),
        credentials=server.values.filter(secret=True).count(),
        subscriptions=subscriptions.filter(active=True).count(),
    )


def catalog_row(server: Server) -> dict[str, Any]:
    """The number of definitions of each kind that the server offers now, and when any of them last changed."""
    definitions = Definition.objects.filter(server=server, **server.identity_filter)
    counts = dict(definitions.filter(removed_at=None).values_list("kind").annotate(Count("id")).order_by())
    moments = definitions.aggregate(changed=Max("changed_at"), removed=Max("removed_at"))
    changed = max((moment for moment in moments.values() if moment), default=None)
    return {kind.value: counts.get(kind.value, 0) for kind in DefinitionKind} | {"changed_at": _time(changed)}


# --- calls -----------------------------------------------------------------------------------------------------------
def call_row(call: Call) -> dict[str, Any]:
    """The JSON row of topic `call.<uid>`. Needs `server` joined. Arguments and result stay in their payloads."""
    state = CallState(call.state)
    return {
        "uid": str(call.uid),
        "number": call.pk,
        "version": call.version,
        "server": str(call.server.uid) if call.server else None,
        "server_name": call.server_name,
        "method": call.method,
        "tool": call.target,
        "user": call.user_name,
        "state": state.value,
        "final": state.final,
        "word": state.label,
        "tone": _CALL_TONES.get(state, "warn"),
        "created_at": _time(call.created_at),
        "sent_at": _time(call.sent_at),
        "finished_at": _time(call.finished_at),
        "fault": call.fault,
        "error_code": call.error_code,
        "cancel_requested_at": _time(call.cancel_requested_at),
        "progress": call.progress,
        "progress_total": call.progress_total,
        "progress_message": call.progress_message,
    }


def calls_by_uid(uids: Iterable[UUID]) -> list[Call]:
    """Calls with everything that a card shows, in one query."""
    return statements.shown(uids)


def calls_since(server: Server, since: datetime) -> list[Call]:
    calls = Call.objects.filter(server=server, created_at__gt=since, **server.identity_filter).select_related("server")
    return list(calls.order_by("-id")[:_MISSED_CALLS])

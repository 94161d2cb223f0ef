"""Resources that agents follow, through a single subscription that the worker maintains for all followers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from servers import access, permissions
from servers.agents.policies import Policies
from servers.audit.record import Actor
from servers.audit.writer import AuditUnavailable
from sessions.agents.endpoints import Endpoint, Entry
from sessions.agents.policy.policy_check import may_follow, require_followable
from sessions.mcp.server.refusals import FORBIDDEN, Refusal, invalid_params
from sessions.models import AgentFollow, AgentSession, ResourceVersion, Subscription
from sessions.subscriptions import subscribing

#: how often a modern stream renews its follows, and after which silence it counts as gone
RENEW_SECONDS: Final = 60.0
GONE_AFTER: Final = timedelta(minutes=5)
#: longer than the time between two renewals of a GET stream
STANDS: Final = timedelta(seconds=2.5 * RENEW_SECONDS)
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Followed:
    """`events`: the number of notifications so far. `newest`: the number of the newest version."""

    subscription: UUID
    uri: str
    events: int
    newest: int


@dataclass(frozen=True)
class Events:
    """The events of a subscription. `count`: notifications so far; `uri`: as the server knows it. `unnotified`: the
    newest version was found without a notification, after a gap or by polling."""

    count: int
    server_id: int
    uri: str
    newest: int
    unnotified: bool

    def changed_since(self, known: Followed) -> bool:
        """The first version is not a change. Notified versions are counted in `count`, though perhaps not at once."""
        return self.count > known.events or (self.unnotified and self.newest > max(known.newest, 1))


def may_follow_any(actor: Actor, entry: Entry) -> bool:
    """Whether this person may follow resources at all: a refusal is recorded once, not for each resource. Call it in a
    work thread."""
    server = entry.place.server if isinstance(entry.place, Endpoint) else None
    try:
        permissions.require(entry.principal.user, actor, "manage_subscription", server, subject=entry.place.name)
    except access.Denied:
        return False
    return True


def follow(actor: Actor, entry: Entry, uri: str, stream: UUID | None = None, *, shown: str = "") -> Followed:
    """Follow a resource for the entry's session, or for a modern stream. `shown`: the URI as the agent knows it, if it
    differs. Raises Refusal. Waits for the writer: call it in a work thread."""
    shown = shown or uri
    if "\0" in uri:
        raise invalid_params("Invalid resource URI.", {"uri": shown})
    require_followable(actor, entry, uri, shown)
    server = entry.endpoint.server
    whose: dict[str, Any] = {"session": entry.session} if entry.session is not None else {"stream": stream}
    follower = AgentFollow(uri=shown, renewed_at=timezone.now(), **whose)
    try:
        row = subscribing.subscribe(actor, entry.principal.user, server, uri, follower=follower)
    except ValidationError as problem:
        raise invalid_params(" ".join(problem.messages), {"uri": shown}) from problem
    except access.Denied as problem:
        raise Refusal(403, FORBIDDEN, str(problem)) from problem
    return Followed(row.uid, shown, row.event_count, row.newest)


def unfollow(entry: Entry, uri: str) -> None:
    """`uri`: as the agent knows it."""
    if entry.session is not None:
        _leave(Q(session_id=entry.session.pk, uri=uri))


def forget_stream(stream: UUID) -> None:
    _leave(Q(stream=stream))


def forget_session(session: AgentSession) -> None:
    _leave(Q(session_id=session.pk))


def _leave(rows: Q) -> None:
    """Detach the followers; they still count for a while, because agents reconnect."""
    AgentFollow.objects.filter(rows).update(session=None, stream=None, renewed_at=timezone.now())


def without_stream(session: AgentSession) -> list[Followed]:
    """What the session follows if it has no GET stream in any web process: its updates go to a POST stream."""
    rows = AgentFollow.objects.filter(session_id=session.pk).exclude(session__streams_until__gt=timezone.now())
    return _followed(rows)


def stands(session: AgentSession) -> None:
    """Record that the session has a GET stream, for as long as this is repeated."""
    AgentSession.objects.filter(pk=session.pk).update(streams_until=timezone.now() + STANDS)


def has_stream(session: AgentSession) -> bool:
    """Whether it had one according to the row when it was read."""
    return session.streams_until is not None and session.streams_until > timezone.now()


def stands_no_more(session: AgentSession) -> None:
    AgentSession.objects.filter(pk=session.pk).update(streams_until=None)


def of_session(session: AgentSession) -> list[Followed]:
    return _followed(AgentFollow.objects.filter(session_id=session.pk))


def _followed(rows: QuerySet[AgentFollow]) -> list[Followed]:
    rows = rows.select_related("subscription")
    return [
        Followed(row.subscription.uid, row.uri, row.subscription.event_count, row.subscription.newest) for row in rows
    ]


def events_of(subscriptions: Collection[UUID]) -> dict[UUID, Events]:
    """The events by subscription. One query."""
    newest = ResourceVersion.objects.filter(subscription=OuterRef("pk"), number=OuterRef("newest"))
    rows = Subscription.objects.filter(uid__in=subscriptions).annotate(unnotified=Exists(newest.filter(events=0)))
    fields = ("event_count", "server_id", "uri", "newest", "unnotified")
    return {uid: Events(*values) for uid, *values in rows.values_list("uid", *fields)}


def allowed(
    known: Mapping[int, Policies], followed: Mapping[UUID, Followed], events: Mapping[UUID, Events]
) -> dict[UUID, Events]:
    """What the agent may still follow. `known`: the policies of each server that it reaches."""
    return {
        uid: found
        for uid, found in events.items()
        if found.server_id in known and may_follow(known[found.server_id], found.uri, followed[uid].uri)
    }


def renew(stream: UUID) -> None:
    AgentFollow.objects.filter(stream=stream).update(renewed_at=timezone.now())


def end_unfollowed() -> int:
    """End subscriptions that exist only for agents, once no agent follows them. Returns how many."""
    left = timezone.now() - GONE_AFTER
    gone = (
        Q(session=None, renewed_at__lt=left)
        | Q(session__ended_at__isnull=False)
        | Q(session__token__revoked_at__lt=left)
        | Q(session__token__expires_at__lt=left)
    )
    stale, ended = AgentFollow.objects.filter(gone), 0
    made = Subscription.objects.filter(pk__in=stale.filter(made=True).values("subscription_id"))
    for row in made.select_related("server", "identity"):
        try:
            ended += subscribing.end_unfollowed(row, gone)
        except AuditUnavailable as problem:  # its rows stay, so the next cleanup ends it
            log.warning("agents.subscription_not_ended", subscription=str(row.uid), problem=str(problem))
    stale.filter(made=False).delete()
    return ended

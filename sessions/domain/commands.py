"""Orders from the web to the worker that holds a session: the order stands in the row, then the worker is rung.

A lost ring costs one tick of the owner (3 s); no live worker costs the time until one starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import F, Q
from django.utils import timezone

from servers import access
from servers.audit.record import Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.enums import AuditAction, AuditOutcome, IdentityKind
from servers.models import Identity, Server, ServerDraft
from sessions import bus
from sessions.domain import lifecycle, timeline
from sessions.enums import Desired
from sessions.models import McpSession, Worker

DURABLE_SECONDS = 2.0
NEEDS_OWN = "{name} is used with an own credential only, and you have none here yet. Add yours under Identity."


@dataclass(frozen=True)
class Order:
    """One change of a session's wish: `fields` where `unless` does not hold yet, recorded as `action`.

    `told`: its title in the connection timeline.
    """

    action: AuditAction
    fields: Mapping[str, Any]
    unless: Q
    word: str
    told: str = ""


_OPEN = Order(AuditAction.SESSION_OPEN, {"desired": Desired.OPEN}, Q(desired=Desired.OPEN), "connect", "Connect")
_CLOSE = Order(
    AuditAction.SESSION_CLOSE, {"desired": Desired.CLOSED}, Q(desired=Desired.CLOSED), "disconnect", "Disconnect"
)
_RECONNECT = Order(
    AuditAction.SESSION_OPEN,
    {"desired": Desired.OPEN, "restart_requested": F("restart_requested") + 1},
    Q(pk=None),
    "reconnect",
    "Reconnect",
)
_REFRESH = Order(
    AuditAction.SESSION_OPEN,
    {"desired": Desired.OPEN, "refresh_requested": F("refresh_requested") + 1},
    Q(pk=None),
    "refresh",
)


def shared_session(server: Server) -> McpSession:
    """The session of the server's shared identity; its row (closed) is made when missing."""
    identity, _ = Identity.objects.get_or_create(server=server, kind=IdentityKind.SHARED)
    return session_of(identity, server)


def session_for(user: access.User, server: Server) -> McpSession:
    """The session that this user's calls go through; its row (closed) is made when missing.

    Raises ValidationError for a user who needs an own identity first.
    """
    key = access.identity_key(user, server)
    if key is None:
        return shared_session(server)
    if not key:
        raise ValidationError(NEEDS_OWN.format(name=server.name), code="identity")
    return session_of(Identity.objects.get(pk=key), server)


def session_of(identity: Identity, server: Server) -> McpSession:
    session, _ = McpSession.objects.get_or_create(
        server=server, identity=identity, defaults={"state_since": timezone.now()}
    )
    session.server, session.identity = server, identity
    return session


def want_session(actor: Actor, session: McpSession) -> bool:
    """Ask for the session to be open. False when it was asked before: the worker is rung all the same."""
    return give(actor, session, _OPEN)


def close_session(actor: Actor, session: McpSession) -> bool:
    """Ask for the session to be closed and kept closed; the host cancels its calls in flight."""
    return give(actor, session, _CLOSE)


def reconnect(actor: Actor, session: McpSession) -> bool:
    """Ask the owner to close and open again; a closed session is opened."""
    return give(actor, session, _RECONNECT)


def refresh(actor: Actor, session: McpSession) -> bool:
    """Ask the owner to read tools, resources and prompts again; a closed session is opened, which does the same."""
    return give(actor, session, _REFRESH)


def give(actor: Actor, session: McpSession, order: Order) -> bool:
    """False when somebody else was faster.

    Raises AuditUnavailable when the order could not be made durable in time: then it does not stand.
    """

    def change() -> bool:
        rows = McpSession.objects.filter(pk=session.pk).exclude(order.unless)
        if not rows.update(version=F("version") + 1, **order.fields):
            return False
        lifecycle.unowned(session.pk)
        if order.told:
            timeline.note(session.pk, order.told, f"Ordered by {actor.name or 'mcpadmin'}.")
        return True

    def events(changed: bool) -> list[Event]:
        return [_event(actor, session, order)] if changed else []

    changed = writer().submit_and_wait(change, events, timeout=DURABLE_SECONDS)
    if changed:
        bus.session_changed(session.server.uid)
        bus.workers_changed()
    summon(session.uid)
    return changed


def _event(actor: Actor, session: McpSession, order: Order) -> Event:
    return Event(
        action=order.action,
        outcome=AuditOutcome.PENDING,
        actor=actor,
        server=ServerRef.of(session.server),
        identity_name=session.identity.name,
        subject=order.word,
    )


# --- reaching a worker -------------------------------------------------------------------------------------------------
def live_workers(label: str = "") -> list[Worker]:
    """Those that carry the label, the least loaded first."""
    fresh = timezone.now() - timedelta(seconds=settings.STALE_SECONDS)
    living = Worker.objects.filter(heartbeat_at__gt=fresh, draining=False).order_by("session_count", "id")
    return [worker for worker in living if not label or label in worker.labels]


def alive(worker: Worker | None) -> bool:
    return worker is not None and worker.heartbeat_at > timezone.now() - timedelta(seconds=settings.STALE_SECONDS)


def summon(session_uid: UUID, *, leaver: UUID | None = None) -> None:
    """Have somebody look at the session's row, without waiting for Redis: its living owner, else a worker to claim it.

    `leaver`: a worker that ends, and must not be asked.
    """
    session = McpSession.objects.select_related("owner", "server").filter(uid=session_uid).first()
    if session is None:
        return
    if session.owner is not None and alive(session.owner):
        bus.ring_later(session.owner.uid, "session", session.uid, session.epoch)
    elif session.desired == Desired.OPEN and not session.paused:
        ask_worker("session", session.uid, session.server.worker_label, leaver)


def ask_worker(verb: bus.Verb, uid: UUID, label: str = "", leaver: UUID | None = None) -> bool:
    """Ring the least loaded live worker that carries the label.

    Without one False: the first that comes finds the row by itself.
    """
    workers = [worker for worker in live_workers(label) if worker.uid != leaver]
    if workers:
        bus.ring_later(workers[0].uid, verb, uid)
    return bool(workers)


def test_draft(actor: Actor, draft: ServerDraft, *credentials: str) -> bool:
    """Have a worker try the draft's connection, audited with the names of the `credentials` that were chosen for it.

    False when no worker lives: the draft waits until it expires.
    """
    event = Event(
        action=AuditAction.CONNECTION_TEST,
        outcome=AuditOutcome.PENDING,
        actor=actor,
        server=None,
        subject=str(draft.transport),
        details={"credentials": list(credentials)} if credentials else {},
    )
    writer().submit_and_wait(lambda: None, lambda _: [event], timeout=DURABLE_SECONDS)
    return ask_worker("test", draft.uid, draft.worker_label)

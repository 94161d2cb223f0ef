"""Orders from the web to the worker that holds a session: the order stands in the row, then the worker is rung.

A lost ring costs one tick of the owner (3 s); no live worker costs the time until one starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from servers.audit.record import Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.enums import AuditAction, AuditOutcome, IdentityKind
from servers.models import Identity, Server, ServerDraft
from sessions import bus
from sessions.enums import Desired
from sessions.models import McpSession, Worker

DURABLE_SECONDS = 2.0
OPEN_TASK, TEST_TASK = "sessions.open", "sessions.test"


@dataclass(frozen=True)
class _Order:
    """One change of a session's wish: `fields` where `unless` does not hold yet, recorded as `action`."""

    action: AuditAction
    fields: Mapping[str, Any]
    unless: Q
    word: str


_OPEN = _Order(AuditAction.SESSION_OPEN, {"desired": Desired.OPEN}, Q(desired=Desired.OPEN), "connect")
_CLOSE = _Order(AuditAction.SESSION_CLOSE, {"desired": Desired.CLOSED}, Q(desired=Desired.CLOSED), "disconnect")
_RECONNECT = _Order(
    AuditAction.SESSION_OPEN,
    {"desired": Desired.OPEN, "restart_requested": F("restart_requested") + 1},
    Q(pk=None),
    "reconnect",
)
_REFRESH = _Order(
    AuditAction.SESSION_OPEN,
    {"desired": Desired.OPEN, "refresh_requested": F("refresh_requested") + 1},
    Q(pk=None),
    "refresh",
)


def shared_session(server: Server) -> McpSession:
    """The session of the server's shared identity; its row (closed) is made when missing."""
    identity, _ = Identity.objects.get_or_create(server=server, kind=IdentityKind.SHARED)
    session, _ = McpSession.objects.get_or_create(
        server=server, identity=identity, defaults={"state_since": timezone.now()}
    )
    session.server, session.identity = server, identity
    return session


def want_session(actor: Actor, session: McpSession) -> bool:
    """Ask for the session to be open. False when it was asked before: the worker is rung all the same."""
    return _give(actor, session, _OPEN)


def close_session(actor: Actor, session: McpSession) -> bool:
    """Ask for the session to be closed and kept closed; the host cancels its calls in flight."""
    return _give(actor, session, _CLOSE)


def reconnect(actor: Actor, session: McpSession) -> bool:
    """Ask the owner to close and open again; a closed session is opened."""
    return _give(actor, session, _RECONNECT)


def refresh(actor: Actor, session: McpSession) -> bool:
    """Ask the owner to read tools, resources and prompts again; a closed session is opened, which does the same."""
    return _give(actor, session, _REFRESH)


def _give(actor: Actor, session: McpSession, order: _Order) -> bool:
    """Raises AuditUnavailable when the order could not be made durable in time: then it does not stand."""

    def change() -> bool:
        rows = McpSession.objects.filter(pk=session.pk).exclude(order.unless)
        return rows.update(version=F("version") + 1, **order.fields) == 1

    def events(changed: bool) -> list[Event]:
        return [_event(actor, session, order)] if changed else []

    changed = writer().submit_and_wait(change, events, timeout=DURABLE_SECONDS)
    if changed:
        bus.session_changed(session.server.uid)
    summon(session.uid)
    return changed


def _event(actor: Actor, session: McpSession, order: _Order) -> Event:
    return Event(
        action=order.action,
        outcome=AuditOutcome.PENDING,
        actor=actor,
        server=ServerRef.of(session.server),
        identity_name=session.identity.name,
        subject=order.word,
    )


# --- reaching a worker -------------------------------------------------------------------------------------------------
def live_workers() -> list[Worker]:
    """Least loaded first."""
    fresh = timezone.now() - timedelta(seconds=settings.STALE_SECONDS)
    return list(Worker.objects.filter(heartbeat_at__gt=fresh, draining=False).order_by("session_count", "id"))


def alive(worker: Worker | None) -> bool:
    return worker is not None and worker.heartbeat_at > timezone.now() - timedelta(seconds=settings.STALE_SECONDS)


def summon(session_uid: UUID) -> None:
    """Have somebody look at the session's row, without waiting for Redis: its living owner, else a worker to claim it."""
    session = McpSession.objects.select_related("owner").filter(uid=session_uid).first()
    if session is None:
        return
    if session.owner is not None and alive(session.owner):
        bus.ring_later(session.owner.uid, "session", session.uid, session.epoch)
    elif session.desired == Desired.OPEN:
        ask_worker(OPEN_TASK, str(session.uid))


def ask_worker(task: str, argument: str) -> bool:
    """Send `task` to the least loaded live worker's own queue; without one to the common queue, and False."""
    workers = live_workers()
    node = workers[0].node if workers else None
    bus.later(lambda: bus.send_task(task, [argument], node=node))
    return node is not None


def test_draft(actor: Actor, draft: ServerDraft) -> bool:
    """Have a worker try the draft's connection, audited. False when no worker lives: the draft waits until it expires."""
    event = Event(
        action=AuditAction.CONNECTION_TEST,
        outcome=AuditOutcome.PENDING,
        actor=actor,
        server=None,
        subject=str(draft.transport),
    )
    writer().submit_and_wait(lambda: None, lambda _: [event], timeout=DURABLE_SECONDS)
    return ask_worker(TEST_TASK, str(draft.uid))

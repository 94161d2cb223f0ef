"""Commands from the web to the worker that owns a session: the web changes the row, then wakes the worker.

A lost wake-up costs one tick of the owner (3 s). Without a live worker the command waits until one starts.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import F, Q
from django.utils import timezone

from servers import access, permissions
from servers.audit.record import Actor, Event, ServerRef
from servers.audit.writer import writer
from servers.enums import AuditAction, AuditOutcome, IdentityKind
from servers.models import Identity, Server, ServerDraft
from sessions import hints
from sessions.connections import lifecycle, timeline
from sessions.enums import Desired
from sessions.models import McpSession, Worker

DURABLE_SECONDS = 2.0
#: free sessions before this one are counted up to here; beyond that, the ticks of the workers take their shares
_MOST_BEFORE = 1_000
NEEDS_OWN = "{name} requires your own credential. Add one under Identity."


@dataclass(frozen=True)
class Command:
    """A change of a session's desired state: sets `fields` unless `unless` already holds, and is audited as `action`.

    `word`: the subject of the audit event. `title`: the title in the connection timeline.
    """

    action: AuditAction
    fields: Mapping[str, Any]
    unless: Q
    word: str
    title: str = ""


_OPEN = Command(AuditAction.SESSION_OPEN, {"desired": Desired.OPEN}, Q(desired=Desired.OPEN), "connect", "Connect")
_CLOSE = Command(
    AuditAction.SESSION_CLOSE, {"desired": Desired.CLOSED}, Q(desired=Desired.CLOSED), "disconnect", "Disconnect"
)
_RECONNECT = Command(
    AuditAction.SESSION_OPEN,
    {"desired": Desired.OPEN, "restart_requested": F("restart_requested") + 1},
    Q(pk=None),
    "reconnect",
    "Reconnect",
)
_REFRESH = Command(
    AuditAction.SESSION_OPEN,
    {"desired": Desired.OPEN, "refresh_requested": F("refresh_requested") + 1},
    Q(pk=None),
    "refresh",
)


def shared_session(server: Server) -> McpSession:
    """The session of the server's shared identity. Its row (closed) is created if missing."""
    identity, _ = Identity.objects.get_or_create(server=server, kind=IdentityKind.SHARED)
    return session_of(identity, server)


def session_for(user: access.User, server: Server) -> McpSession:
    """The session for this user's calls. Its row (closed) is created if missing.

    Raises ValidationError for a user who needs a personal identity first.
    """
    key = access.identity_key(user, server)
    if key is None:
        return shared_session(server)
    if not key:
        raise ValidationError(NEEDS_OWN.format(name=server.name), code="identity")
    return session_of(Identity.objects.get(pk=key), server)


def session_to_control(actor: Actor, user: access.User, server: Server) -> McpSession:
    """As `session_for`, for commands that everyone whose calls use the session would notice: all but connecting and
    reloading the lists, which each call may do too. Raises access.Denied, recorded."""
    try:
        access.require_control(user, access.with_identity_of(user, server))
    except access.Denied as denied:
        permissions.record_denial(actor, denied)
        raise
    return session_for(user, server)


def session_of(identity: Identity, server: Server) -> McpSession:
    session, _ = McpSession.objects.get_or_create(
        server=server, identity=identity, defaults={"state_since": timezone.now()}
    )
    session.server, session.identity = server, identity
    return session


def open_session(actor: Actor, session: McpSession) -> bool:
    """Request an open session. False if it was already requested; the worker is woken in either case."""
    return give(actor, session, _OPEN)


def close_session(actor: Actor, session: McpSession) -> bool:
    """Request that the session is closed and stays closed. The host cancels its calls in flight; those that wait for it
    stay (see sessions.calls.session_pausing)."""
    return give(actor, session, _CLOSE)


def reconnect(actor: Actor, session: McpSession) -> bool:
    """Ask the owner to close and open again. A closed session is opened."""
    return give(actor, session, _RECONNECT)


def refresh(actor: Actor, session: McpSession) -> bool:
    """Ask the owner to read tools, resources and prompts again. A closed session is opened, which does the same."""
    return give(actor, session, _REFRESH)


def set_log_level(actor: Actor, session: McpSession, level: str) -> bool:
    """Request log messages of this level and above from the server, now and at each opening. "" means the server's
    default (legacy) or info (modern)."""
    word = f"log level {level or 'default'}"
    return give(actor, session, Command(AuditAction.SESSION_OPEN, {"log_level": level}, Q(log_level=level), word))


def give(actor: Actor, session: McpSession, command: Command) -> bool:
    """Commit the command and wake the owner. False if another change was faster.

    Raises AuditUnavailable if the command was not durable in time: then it has no effect.
    """

    def change() -> bool:
        rows = McpSession.objects.filter(pk=session.pk).exclude(command.unless)
        if not rows.update(version=F("version") + 1, **command.fields):
            return False
        lifecycle.unowned(session.pk)
        if command.title:
            timeline.note(session.pk, command.title, f"Requested by {actor.name or 'mcpadmin'}.")
        return True

    def events(changed: bool) -> list[Event]:
        return [_event(actor, session, command)] if changed else []

    changed = writer().submit_and_wait(change, events, timeout=DURABLE_SECONDS)
    if changed:
        hints.session_changed(session.server.uid)
        hints.workers_changed()
    wake_owner(session.uid)
    return changed


def _event(actor: Actor, session: McpSession, command: Command) -> Event:
    return Event(
        action=command.action,
        outcome=AuditOutcome.PENDING,
        actor=actor,
        server=ServerRef.of(session.server),
        identity_name=session.identity.name,
        subject=command.word,
    )


# --- reaching a worker -------------------------------------------------------------------------------------------------
def live_workers(label: str = "") -> list[Worker]:
    """Workers that carry the label, the least loaded first."""
    living = Worker.objects.living().filter(draining=False).order_by("session_count", "id")
    return [worker for worker in living if not label or label in worker.labels]


def alive(worker: Worker | None) -> bool:
    return worker is not None and worker.alive


def wake_owner(session_uid: UUID, *, departing: UUID | None = None) -> None:
    """Wake a worker to look at the session's row, without waiting for Redis: its live owner, or else a worker that may
    claim it. `departing` is a worker that is stopping and must not be asked.
    """
    session = McpSession.objects.select_related("owner", "server").filter(uid=session_uid).first()
    if session is None:
        return
    if session.owner is not None and alive(session.owner):
        hints.wake_worker(session.owner.uid, "session", session.uid)
    elif (
        session.desired == Desired.OPEN
        and not session.paused
        and (worker := _next_owner(session, departing)) is not None
    ):
        hints.wake_worker(worker.uid, "session", session.uid)


def _next_owner(session: McpSession, departing: UUID | None) -> Worker | None:
    """The worker to wake, which then claims the session (`assignment`): with free sessions dealt out in order, each to the
    worker with the fewest then. Counts rows, because heartbeats are seconds old right after an import of many servers."""
    label = session.server.worker_label
    workers = {worker.pk: worker for worker in live_workers(label) if worker.uid != departing}
    held = Counter(McpSession.objects.filter(owner__in=workers).values_list("owner_id", flat=True))
    loads = [(held[pk], worker.session_count, pk) for pk, worker in workers.items()]
    if not loads:
        return None
    heapq.heapify(loads)
    free = McpSession.objects.filter(lifecycle.IN_SERVICE, desired=Desired.OPEN, paused=False, owner=None)
    before = free.filter(server__worker_label=label, pk__lt=session.pk)[:_MOST_BEFORE].count()
    for _ in range(before):
        load, count, pk = loads[0]
        heapq.heapreplace(loads, (load + 1, count, pk))
    return workers[loads[0][-1]]


def ask_worker(verb: hints.Verb, uid: UUID, label: str = "", departing: UUID | None = None) -> bool:
    """Wake the least loaded live worker that carries the label.

    Returns False without one: the next worker that starts finds the row by itself.
    """
    workers = [worker for worker in live_workers(label) if worker.uid != departing]
    if workers:
        hints.wake_worker(workers[0].uid, verb, uid)
    return bool(workers)


def test_draft(actor: Actor, draft: ServerDraft, *credentials: str) -> bool:
    """Store a new draft and have a worker test its connection, audited with the names of the `credentials` chosen for it.
    One commit: no worker finds a draft whose test is not recorded. Raises AuditUnavailable.

    Returns False when no worker is alive: the draft waits until it expires.
    """
    event = Event(
        action=AuditAction.CONNECTION_TEST,
        outcome=AuditOutcome.PENDING,
        actor=actor,
        server=None,
        subject=str(draft.transport),
        details={"credentials": list(credentials)} if credentials else {},
    )
    writer().submit_and_wait(draft.save, lambda _: [event], timeout=DURABLE_SECONDS)
    return ask_worker("test", draft.uid, draft.worker_label)

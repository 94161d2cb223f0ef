"""Every change of a session's status, each one conditional UPDATE on owner and epoch.

A verb that changes the state returns a Transition, any other whether it changed something. If it did not, another worker
owns the session now, and the caller must close what it has open silently. Verbs run inside the caller's transaction;
pages are notified after the commit.

    disconnected -> connecting -> initializing -> ready -> disconnecting -> disconnected
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.utils import timezone

from servers.audit.record import SYSTEM, Event, ServerRef
from servers.enums import AuditAction, AuditOutcome, IdentityKind, SignsInAs
from servers.storable import storable, storable_json
from sessions import hints
from sessions.connections import statements, timeline
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.mcp.core.refusals import without_words
from sessions.models import Call, McpSession, ServerTask, Subscription

DETAIL_CHARS, TAIL_CHARS, WARNINGS = 4_000, 8_000, 50
#: characters of a failure in an audit event: our sentence, followed by the server's own text
AUDITED_CHARS = 3_000
_NO_FAULT: Mapping[str, Any] = {
    **dict.fromkeys(("fault", "fault_step", "fault_detail", "stderr_tail"), ""),
    **dict.fromkeys(("fault_at", "failing_since")),
}
_NO_PROCESS: Mapping[str, Any] = {"process": {}, "process_at": None}
#: the first connection of a session is not a restart
_RESTARTED = statements.Term("restarts + CASE WHEN connected_at IS NULL THEN 0 ELSE 1 END")
_FIRST_FAULT = statements.Term("COALESCE(failing_since, CURRENT_TIMESTAMP)")
#: filter for sessions whose server may be opened now, under this identity
IN_SERVICE = Q(server__enabled=True, server__archived_at=None) & (
    Q(identity__kind=IdentityKind.SHARED, server__signs_in_as__in=[SignsInAs.SHARED, SignsInAs.EITHER])
    | Q(
        identity__kind=IdentityKind.PERSONAL,
        identity__ended_at=None,
        identity__user__is_active=True,
        server__signs_in_as__in=[SignsInAs.EITHER, SignsInAs.PERSONAL],
    )
)
_OPEN_CALLS = [CallState.REQUESTED, CallState.SENT]
_LEADING_TO: Mapping[SessionState, tuple[SessionState, ...]] = {
    SessionState.CONNECTING: (SessionState.DISCONNECTED,),
    SessionState.INITIALIZING: (SessionState.CONNECTING, SessionState.READY),
    SessionState.READY: (SessionState.CONNECTING, SessionState.INITIALIZING),
    SessionState.DISCONNECTING: (SessionState.CONNECTING, SessionState.INITIALIZING, SessionState.READY),
    SessionState.DISCONNECTED: tuple(SessionState),
}


class Transition(Enum):
    """The outcome of a state change. True if the session is in that state, and ours."""

    MADE = "made"
    #: by an earlier try, whose commit was not confirmed
    MADE_BEFORE = "made_before"
    OVERTAKEN = "overtaken"

    def __bool__(self) -> bool:
        return self is not Transition.OVERTAKEN


@dataclass(frozen=True)
class Lease:
    """Proof of ownership of a session: worker and epoch. Every write about a session includes both."""

    session_id: int
    session_uid: UUID
    server_id: int
    server_uid: UUID
    server_name: str
    identity_name: str
    worker_id: int
    worker_uid: UUID
    epoch: int
    node: str = ""
    identity_id: int = 0
    personal: bool = False

    @property
    def server(self) -> ServerRef:
        return ServerRef(uid=self.server_uid, name=self.server_name)


@dataclass(frozen=True)
class Failure:
    """Why a session is not open, as its page shows it."""

    fault: str
    detail: str
    step: str = ""
    stderr_tail: str = ""

    def fields(self) -> dict[str, Any]:
        return {
            "fault": self.fault,
            "fault_step": self.step,
            "fault_detail": storable(self.detail, DETAIL_CHARS),
            "fault_at": timezone.now(),
            "failing_since": _FIRST_FAULT,
            "stderr_tail": storable(self.stderr_tail[-TAIL_CHARS:], TAIL_CHARS),
        }


@dataclass(frozen=True)
class Greeting:
    """What the server said about itself when the session opened."""

    era: str
    revision: str
    transport: str
    url: str
    decided_by: str
    decided_at: datetime
    remembered: dict[str, Any]
    server_info: dict[str, Any]
    instructions: str
    server_capabilities: dict[str, Any]
    client_capabilities: dict[str, Any]

    def fields(self) -> dict[str, Any]:
        return {name: storable_json(value) for name, value in vars(self).items()}


def held(lease: Lease) -> QuerySet[McpSession]:
    return McpSession.objects.filter(pk=lease.session_id, owner_id=lease.worker_id, epoch=lease.epoch)


def connecting(lease: Lease, attempt: int, restarts: int) -> Transition:
    """`restarts` is the number of the restart request that this attempt fulfils. A new request clears `remembered`."""
    remembered = statements.Term(f"CASE WHEN restart_done = {int(restarts)} THEN remembered ELSE '{{}}' END")
    fields = {"attempts": attempt, "restart_done": restarts, "remembered": remembered, "next_retry_at": None}
    fields["stderr_tail"] = ""
    return _enter(lease, SessionState.CONNECTING, **fields)


def starting(lease: Lease, stderr_tail: str) -> bool:
    """What a child writes to stderr before its session is open."""
    tail = storable(stderr_tail[-TAIL_CHARS:], TAIL_CHARS)
    return _change(lease, (SessionState.CONNECTING, SessionState.INITIALIZING), stderr_tail=tail)


def initializing(lease: Lease) -> Transition:
    return _enter(lease, SessionState.INITIALIZING)


def ready(lease: Lease, greeting: Greeting) -> Transition:
    fields = {"connected_at": timezone.now(), "restarts": _RESTARTED, **_NO_FAULT, **greeting.fields()}
    return _enter(lease, SessionState.READY, _ready_words(greeting), **fields)


def _ready_words(greeting: Greeting) -> str:
    way = f" over {greeting.transport.replace('_', ' ')}" if greeting.transport else ""
    return f"Revision {greeting.revision}{way}."


def ready_again(lease: Lease) -> Transition:
    """Called after the server lost its wire session and opened a new one."""
    return _enter(lease, SessionState.READY, "The server lost the session; a new one was opened.")


def disconnecting(lease: Lease) -> Transition:
    return _enter(lease, SessionState.DISCONNECTING)


def disconnected(lease: Lease, words: str = "Session closed.") -> Transition:
    """Closed on request, so no fault remains to be shown."""
    fields = {"attempts": 0, "next_retry_at": None, **_NO_PROCESS, **_NO_FAULT}
    return _enter(lease, SessionState.DISCONNECTED, words, **fields)


def backing_off(lease: Lease, failure: Failure, delay: float, *, breaker_open: bool = False) -> Transition:
    """The next attempt follows in `delay` seconds."""
    retry: datetime = timezone.now() + timedelta(seconds=delay)
    condition = SessionCondition.FAILING if breaker_open else SessionCondition.BACKING_OFF
    fields = {"condition": condition, "next_retry_at": retry, **_NO_PROCESS}
    return _enter(lease, SessionState.DISCONNECTED, **fields, **failure.fields())


def waiting_for_person(lease: Lease, condition: SessionCondition, failure: Failure) -> Transition:
    fields = {"condition": condition, "next_retry_at": None, **_NO_PROCESS}
    transition = _enter(lease, SessionState.DISCONNECTED, **fields, **failure.fields())
    if transition and condition == SessionCondition.NEEDS_AUTH:
        transaction.on_commit(partial(hints.sign_in_needed, lease.server_uid))
    return transition


def close_when_idle(lease: Lease) -> bool:
    """Withdraw the request for the session, unless a call is pending, a subscription is active, or a task is followed on."""
    # On PostgreSQL this waits for calls that are being placed, and only a later statement sees them.
    held(lease).select_for_update().values_list("pk", flat=True).first()
    waiting = Call.objects.filter(session_id=OuterRef("pk"), state__in=_OPEN_CALLS)
    same = {"server_id": OuterRef("server_id"), "identity_id": OuterRef("identity_id")}
    watched = Subscription.objects.filter(active=True, **same)
    tasks = ServerTask.objects.followed_on().filter(session_id=OuterRef("pk"))
    unused = held(lease).filter(~Exists(waiting), ~Exists(watched), ~Exists(tasks), desired=Desired.OPEN)
    return _announce_if(lease, unused.update(version=F("version") + 1, desired=Desired.CLOSED) == 1)


def catalog_read(
    lease: Lease, request_number: int | None, warnings: list[str], cuts: Mapping[str, list[str]], **more: Any
) -> bool:
    """Lists were read and stored. `request_number`: the number of the refresh request that this fulfils, if it is complete.
    `cuts`: kind to (fault, words)."""
    kept = [storable(warning, 500) for warning in warnings[:WARNINGS]]
    done = {} if request_number is None else {"refresh_done": request_number}
    return _change(lease, (), "catalog", catalog_warnings=kept, catalog_cuts=dict(cuts), **done, **more)


def measured(lease: Lease, latency_ms: float) -> bool:
    return _change(lease, (), latency_ms=latency_ms)


def process(lease: Lease, found: Mapping[str, Any]) -> bool:
    """What the child and its descendants use now."""
    return _change(lease, (SessionState.READY,), process=storable_json(found), process_at=timezone.now())


def used(lease: Lease, at: datetime) -> None:
    """No visible change, so no new version."""
    held(lease).update(last_used_at=at)


def release(lease: Lease) -> bool:
    """Release the session, so that any worker may claim it at once if it is still desired."""
    fields = {"owner": None, "state": SessionState.DISCONNECTED, "next_retry_at": None, **_NO_PROCESS}
    if not _change(lease, (), state_since=timezone.now(), **fields):
        return False
    unowned(lease.session_id)
    session = McpSession.objects.get(pk=lease.session_id)
    if session.condition == SessionCondition.WAITING_WORKER:
        words = "Any matching worker can claim it."
        entry = timeline.TimelineEntry(
            session.state, session.condition, "Given back", epoch=session.epoch, worker=lease.node, detail=words
        )
        timeline.append(session.pk, entry)
    return True


def unowned(session_id: int) -> bool:
    """Set the condition of a session without an owner, after a change of its desired state or owner."""
    serving = McpSession.objects.filter(IN_SERVICE, pk=OuterRef("pk"))
    waits = Case(
        When(paused=True, then=Value(SessionCondition.PAUSED)),
        When(Exists(serving) & Q(desired=Desired.OPEN), then=Value(SessionCondition.WAITING_WORKER)),
        default=Value(SessionCondition.NONE),
    )
    return McpSession.objects.filter(pk=session_id, owner=None).update(condition=waits) == 1


def _enter(lease: Lease, state: SessionState, words: str = "", /, **fields: Any) -> Transition:
    known = {"state": state, "state_since": timezone.now(), "condition": SessionCondition.NONE} | fields
    if _change(lease, _LEADING_TO[state], **known):
        timeline.append(lease.session_id, _entry(lease, known, words))
        return Transition.MADE
    if _announce_if(lease, held(lease).filter(state=state).exists()):
        return Transition.MADE_BEFORE
    return Transition.OVERTAKEN


def _entry(lease: Lease, known: Mapping[str, Any], words: str) -> timeline.TimelineEntry:
    return timeline.TimelineEntry(
        state=known["state"],
        condition=known["condition"],
        attempt=known.get("attempts", 0),
        epoch=lease.epoch,
        worker=lease.node,
        fault=known.get("fault", ""),
        step=known.get("fault_step", ""),
        detail=known.get("fault_detail") or words,
        next_retry_at=known.get("next_retry_at"),
    )


def _change(lease: Lease, states: Collection[str], kind: str = "session", /, **fields: Any) -> bool:
    """Change a session that is in one of `states`; in any state if none are given."""
    return _announce_if(
        lease, statements.change((lease.session_id, lease.worker_id, lease.epoch), states, fields), kind
    )


def _announce_if(lease: Lease, changed: bool, kind: str = "session") -> bool:
    if changed:
        announce(lease.server_uid, kind)
    return changed


def announce(server_uid: UUID, kind: str = "session") -> None:
    """Notify the pages once the current transaction is committed. They read the row and its version themselves."""
    transaction.on_commit(lambda: hints.session_changed(server_uid, kind=kind))
    if kind == "session":
        transaction.on_commit(hints.workers_changed)


# --- audit ---------------------------------------------------------------------------------------------------------
def ready_event(lease: Lease, greeting: Greeting) -> Event:
    details = {"revision": greeting.revision, "epoch": lease.epoch}
    return _event(lease, AuditAction.SESSION_READY, AuditOutcome.OK, details)


def lost_event(lease: Lease, failure: Failure) -> Event:
    # without the server's text: the contents of an event cannot be erased
    detail = without_words(failure.detail)[:AUDITED_CHARS]
    details = {"fault": failure.fault, "detail": detail, "epoch": lease.epoch}
    return _event(lease, AuditAction.SESSION_LOST, AuditOutcome.FAILED, details)


def _event(lease: Lease, action: AuditAction, outcome: AuditOutcome, details: dict[str, Any]) -> Event:
    return Event(
        action=action,
        outcome=outcome,
        actor=SYSTEM,
        server=lease.server,
        identity_name=lease.identity_name,
        details=details,
    )

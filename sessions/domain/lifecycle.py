"""Every change of a session's status, each one conditional UPDATE that names its owner and epoch.

A verb returns False when it changed nothing: somebody else owns the session now, and whoever asked has to close what
it holds without a word. Verbs run inside the caller's transaction; pages hear of them once it is committed.

    disconnected -> connecting -> initializing -> ready -> disconnecting -> disconnected      (protocol section 4.1)
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Value, When
from django.utils import timezone

from servers.audit.record import SYSTEM, Event, ServerRef
from servers.enums import AuditAction, AuditOutcome, IdentityKind, SignsInAs
from sessions import bus
from sessions.domain import session_row, timeline
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.models import Call, McpSession, Subscription

DETAIL_CHARS, TAIL_CHARS, WARNINGS = 4_000, 8_000, 50
_NO_FAULT: Mapping[str, Any] = {"fault": "", "fault_step": "", "fault_detail": "", "fault_at": None, "stderr_tail": ""}
_NO_PROCESS: Mapping[str, Any] = {"process": {}, "process_at": None}
#: the first connection of a session is no restart
_RESTARTED = session_row.Term("restarts + CASE WHEN connected_at IS NULL THEN 0 ELSE 1 END")
#: of sessions: their server may be opened now, under this identity
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


@dataclass(frozen=True)
class Hold:
    """Proof of ownership: worker and epoch. Every write about a session names it."""

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
            "stderr_tail": storable(self.stderr_tail[-TAIL_CHARS:], TAIL_CHARS),
        }


@dataclass(frozen=True)
class Greeting:
    """What the server said of itself when the session opened."""

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


def storable(text: str, limit: int) -> str:
    """A server's words as text that any database takes: without NUL and lone surrogates."""
    return text[:limit].replace("\0", "").encode("utf-8", "replace").decode()


def storable_json(value: Any) -> Any:
    """The same for a JSON value that a server sent."""
    if isinstance(value, str):
        return storable(value, len(value))
    if isinstance(value, Mapping):
        return {storable(str(name), 1_000): storable_json(item) for name, item in value.items()}
    return [storable_json(item) for item in value] if isinstance(value, list) else value


def held(hold: Hold) -> QuerySet[McpSession]:
    return McpSession.objects.filter(pk=hold.session_id, owner_id=hold.worker_id, epoch=hold.epoch)


def connecting(hold: Hold, attempt: int, restarts: int) -> bool:
    """`restarts`: the order to restart that this attempt fulfils; what was found out before it is forgotten."""
    remembered = session_row.Term(f"CASE WHEN restart_done = {int(restarts)} THEN remembered ELSE '{{}}' END")
    fields = {"attempts": attempt, "restart_done": restarts, "remembered": remembered, "next_retry_at": None}
    return _enter(hold, SessionState.CONNECTING, **fields)


def initializing(hold: Hold) -> bool:
    return _enter(hold, SessionState.INITIALIZING)


def ready(hold: Hold, greeting: Greeting) -> bool:
    fields = {"connected_at": timezone.now(), "restarts": _RESTARTED, **_NO_FAULT, **greeting.fields()}
    return _enter(hold, SessionState.READY, _ready_words(greeting), **fields)


def _ready_words(greeting: Greeting) -> str:
    way = f" over {greeting.transport.replace('_', ' ')}" if greeting.transport else ""
    return f"Revision {greeting.revision}{way}."


def ready_again(hold: Hold) -> bool:
    """After the server forgot its wire session and took a new one."""
    return _enter(hold, SessionState.READY, "The server forgot its session; a new one was taken.")


def disconnecting(hold: Hold) -> bool:
    return _enter(hold, SessionState.DISCONNECTING)


def disconnected(hold: Hold, words: str = "Session closed.") -> bool:
    """Closed as ordered, so no fault is left to show."""
    fields = {"attempts": 0, "next_retry_at": None, **_NO_PROCESS, **_NO_FAULT}
    return _enter(hold, SessionState.DISCONNECTED, words, **fields)


def backing_off(hold: Hold, failure: Failure, delay: float, *, breaker_open: bool = False) -> bool:
    """The next try follows in `delay` seconds."""
    retry: datetime = timezone.now() + timedelta(seconds=delay)
    condition = SessionCondition.FAILING if breaker_open else SessionCondition.BACKING_OFF
    fields = {"condition": condition, "next_retry_at": retry, **_NO_PROCESS}
    return _enter(hold, SessionState.DISCONNECTED, **fields, **failure.fields())


def waiting_for_person(hold: Hold, condition: SessionCondition, failure: Failure) -> bool:
    fields = {"condition": condition, "next_retry_at": None, **_NO_PROCESS}
    if not _enter(hold, SessionState.DISCONNECTED, **fields, **failure.fields()):
        return False
    if condition == SessionCondition.NEEDS_AUTH:
        transaction.on_commit(partial(bus.sign_in_needed, hold.server_uid))
    return True


def close_when_idle(hold: Hold) -> bool:
    """Take back the wish for the session, unless a call arrived meanwhile, or somebody subscribed."""
    waiting = Call.objects.filter(session_id=OuterRef("pk"), state__in=_OPEN_CALLS)
    same = {"server_id": OuterRef("server_id"), "identity_id": OuterRef("identity_id")}
    watched = Subscription.objects.filter(active=True, **same)
    unused = held(hold).filter(~Exists(waiting), ~Exists(watched), desired=Desired.OPEN)
    return _told(hold, unused.update(version=F("version") + 1, desired=Desired.CLOSED) == 1)


def catalog_read(hold: Hold, order: int, warnings: list[str], cuts: Mapping[str, list[str]], **more: Any) -> bool:
    """The lists were read and stored. `order`: the wish to refresh that this fulfils; `cuts`: kind to (fault, words)."""
    kept = [storable(warning, 500) for warning in warnings[:WARNINGS]]
    return _change(hold, (), "catalog", refresh_done=order, catalog_warnings=kept, catalog_cuts=dict(cuts), **more)


def measured(hold: Hold, latency_ms: float) -> bool:
    return _change(hold, (), latency_ms=latency_ms)


def process(hold: Hold, found: Mapping[str, Any]) -> bool:
    """What the child and its descendants use now."""
    return _change(hold, (SessionState.READY,), process=storable_json(found), process_at=timezone.now())


def used(hold: Hold, at: datetime) -> None:
    """No visible change, hence no new version."""
    held(hold).update(last_used_at=at)


def release(hold: Hold) -> bool:
    """Give the session up, so that any worker may claim it at once when it is still wanted."""
    fields = {"owner": None, "state": SessionState.DISCONNECTED, "next_retry_at": None, **_NO_PROCESS}
    if not _change(hold, (), state_since=timezone.now(), **fields):
        return False
    unowned(hold.session_id)
    session = McpSession.objects.get(pk=hold.session_id)
    if session.condition == SessionCondition.WAITING_WORKER:
        words = "Any worker that may hold it can take it."
        entry = timeline.Entry(
            session.state, session.condition, "Given back", epoch=session.epoch, worker=hold.node, detail=words
        )
        timeline.append(session.pk, entry)
    return True


def unowned(session_id: int) -> bool:
    """Say what a session that nobody holds waits for, after a change of its wish or of its owner."""
    serving = McpSession.objects.filter(IN_SERVICE, pk=OuterRef("pk"))
    waits = Case(
        When(paused=True, then=Value(SessionCondition.PAUSED)),
        When(Exists(serving) & Q(desired=Desired.OPEN), then=Value(SessionCondition.WAITING_WORKER)),
        default=Value(SessionCondition.NONE),
    )
    return McpSession.objects.filter(pk=session_id, owner=None).update(condition=waits) == 1


def _enter(hold: Hold, state: SessionState, words: str = "", /, **fields: Any) -> bool:
    known = {"state": state, "state_since": timezone.now(), "condition": SessionCondition.NONE} | fields
    if not _change(hold, _LEADING_TO[state], **known):
        return False
    timeline.append(hold.session_id, _entry(hold, known, words))
    return True


def _entry(hold: Hold, known: Mapping[str, Any], words: str) -> timeline.Entry:
    return timeline.Entry(
        state=known["state"],
        condition=known["condition"],
        attempt=known.get("attempts", 0),
        epoch=hold.epoch,
        worker=hold.node,
        fault=known.get("fault", ""),
        step=known.get("fault_step", ""),
        detail=known.get("fault_detail") or words,
        next_retry_at=known.get("next_retry_at"),
    )


def _change(hold: Hold, states: Collection[str], kind: str = "session", /, **fields: Any) -> bool:
    """In one of `states`, in any when none are named."""
    return _told(hold, session_row.change((hold.session_id, hold.worker_id, hold.epoch), states, fields), kind)


def _told(hold: Hold, changed: bool, kind: str = "session") -> bool:
    if changed:
        announce(hold.server_uid, kind)
    return changed


def announce(server_uid: UUID, kind: str = "session") -> None:
    """Tell the pages once the current transaction is committed. They read the row and its version themselves."""
    transaction.on_commit(lambda: bus.session_changed(server_uid, kind=kind))
    if kind == "session":
        transaction.on_commit(bus.workers_changed)


# --- audit ---------------------------------------------------------------------------------------------------------
def ready_event(hold: Hold, greeting: Greeting) -> Event:
    details = {"revision": greeting.revision, "epoch": hold.epoch}
    return _event(hold, AuditAction.SESSION_READY, AuditOutcome.OK, details)


def lost_event(hold: Hold, failure: Failure) -> Event:
    details = {"fault": failure.fault, "detail": failure.detail[:500], "epoch": hold.epoch}
    return _event(hold, AuditAction.SESSION_LOST, AuditOutcome.FAILED, details)


def _event(hold: Hold, action: AuditAction, outcome: AuditOutcome, details: dict[str, Any]) -> Event:
    return Event(
        action=action,
        outcome=outcome,
        actor=SYSTEM,
        server=hold.server,
        identity_name=hold.identity_name,
        details=details,
    )

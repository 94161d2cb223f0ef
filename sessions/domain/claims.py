"""The worker's side of a call: the claim before its bytes leave, its attempts, its one final state (decisions G1, G2).

Each change is one conditional UPDATE in the caller's transaction and returns the audit events that belong to it: none
means that somebody else was faster and nothing may follow. What the web side may end stands in `endings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import Actor, Event, ServerRef
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions import bus
from sessions.domain import call_rows
from sessions.domain.endings import Ending, end_now, finish_event
from sessions.domain.lifecycle import Hold, storable
from sessions.enums import CallState
from sessions.models import Attempt, Call
from sessions.protocol.methods import TOOLS_CALL

TEXT_CHARS = 4_000
DATA_CHARS = 64 * 1024
#: a claim whose commit was not confirmed is looked at again after this time
STRAY_AFTER = timedelta(seconds=15)
_AUDITED: Mapping[CallState, AuditOutcome] = {
    CallState.SUCCEEDED: AuditOutcome.OK,
    CallState.TOOL_ERROR: AuditOutcome.TOOL_ERROR,
    CallState.RPC_ERROR: AuditOutcome.RPC_ERROR,
    CallState.FAILED: AuditOutcome.FAILED,
    CallState.CANCELLED: AuditOutcome.CANCELLED,
    CallState.OUTCOME_UNKNOWN: AuditOutcome.UNKNOWN,
}
_STRAY = Ending(
    CallState.SENT,
    CallState.FAILED,
    AuditOutcome.FAILED,
    "The database did not confirm in time that this call may be sent, so it was not. It did not reach the server.",
)


@dataclass(frozen=True)
class Order:
    """A requested call as its worker reads it. `arguments` is JSON text, `definition` the tool as the server wrote it:
    what else is asked for goes without its description."""

    pk: int
    uid: UUID
    session_id: int
    method: str
    target: str
    arguments: str
    arguments_digest: str
    actor: Actor
    definition: str = field(default="", repr=False)


@dataclass(frozen=True)
class Outcome:
    """How a call ended. `result` is the JSON text to keep, already without secrets."""

    state: CallState
    result: str | None = None
    fault: str = ""
    detail: str = ""
    error_code: int | None = None
    error_message: str = ""
    error_data: str = ""
    schema_violation: str = ""

    def fields(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "fault": self.fault,
            "detail": storable(self.detail, TEXT_CHARS),
            "error_code": self.error_code,
            "error_message": storable(self.error_message, TEXT_CHARS),
            "error_data": storable(self.error_data, DATA_CHARS),
            "schema_violation": storable(self.schema_violation, TEXT_CHARS),
        }


def read_order(uid: UUID) -> Order | None:
    """The call if it still waits to be sent. Reads only."""
    found = call_rows.waiting(uid)
    if found is None:
        return None
    call, arguments, definition = found
    text = payloads.read(arguments)
    if call.session_id is None or text is None:
        return None
    return Order(
        pk=call.pk,
        uid=uid,
        session_id=call.session_id,
        method=call.method,
        target=call.target,
        arguments=text,
        arguments_digest=arguments.digest,
        actor=Actor(call.user_id, call.user_name),
        definition=definition if call.method == TOOLS_CALL else "",
    )


def waiting(session_ids: list[int], limit: int = 500) -> list[tuple[UUID, int]]:
    """Calls of these sessions that wait to be sent, each with its session, oldest first. Reads only."""
    due = Call.objects.filter(session_id__in=session_ids, state=CallState.REQUESTED, deadline__gt=timezone.now())
    return list(due.order_by("pk").values_list("uid", "session_id")[:limit])


def cancelled_by_people(worker_uid: UUID) -> list[UUID]:
    """Running calls of this worker that somebody wants cancelled. Reads only."""
    asked = Call.objects.filter(worker_uid=worker_uid, state=CallState.SENT, cancel_requested_at__isnull=False)
    return list(asked.values_list("uid", flat=True)[:500])


# --- claim and attempts --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Taken:
    order: Order
    events: list[Event]


def take(uid: UUID, hold: Hold) -> Taken | None:
    """Read a call that waits for the session of `hold`, and claim it: in one transaction, since each way to the database
    and back costs more than the statements."""
    order = read_order(uid)
    if order is None or order.session_id != hold.session_id:
        return None
    events = claim(order, hold)
    return Taken(order, events) if events else None


def taken_events(taken: Taken | None) -> list[Event]:
    return taken.events if taken else []


def claim(order: Order, hold: Hold) -> list[Event]:
    """Only after this is committed may the call's bytes leave."""
    now = timezone.now()
    version = call_rows.claim(order.pk, hold, now)
    if version is None:
        return []
    call_rows.insert_attempt(Attempt(call_id=order.pk, number=1, reason="first", at=now))
    _announce(order, hold, version, passing=True)
    return [_event(order, hold, AuditAction.CALL_SEND, AuditOutcome.PENDING, {"attempt": 1, "epoch": hold.epoch})]


def attempt(order: Order, hold: Hold, number: int, reason: str) -> list[Event]:
    """A further attempt after a definite rejection (decisions G5); only after this is committed may it leave."""
    if not _running(order, hold).update(version=F("version") + 1):
        return []
    Attempt.objects.create(call_id=order.pk, number=number, reason=reason[:60], at=timezone.now())
    details = {"attempt": number, "reason": reason[:60], "epoch": hold.epoch}
    return [_event(order, hold, AuditAction.CALL_SEND, AuditOutcome.PENDING, details)]


def progressed(order: Order, hold: Hold, progress: float, total: float | None, message: str | None) -> None:
    """Only the newest counts; the page was told already, so the version stays."""
    words = storable(message or "", 500)
    _running(order, hold).update(progress=progress, progress_total=total, progress_message=words)


# --- the end ---------------------------------------------------------------------------------------------------------
def finish(order: Order, hold: Hold, outcome: Outcome) -> list[Event]:
    """The final state, unless the call has one already: then a result is kept as late."""
    result = None if outcome.result is None else payloads.store(PayloadKind.RESULT, outcome.result)
    ended = {"finished_at": timezone.now(), "result": None if result is None else result.pk, **outcome.fields()}
    digests = {"arguments": order.arguments_digest} | ({} if result is None else {"result": result.digest})
    if (version := call_rows.finish(order.pk, hold, ended)) is not None:
        _announce(order, hold, version)
        details = {"state": outcome.state.value, "epoch": hold.epoch}
        if outcome.fault:
            details |= {"fault": outcome.fault, "detail": outcome.detail[:500]}
        return [_event(order, hold, AuditAction.CALL_FINISH, _AUDITED[outcome.state], details, digests)]
    return [] if result is None else _late(order, hold, outcome, result.pk, digests)


def late(order: Order, hold: Hold, outcome: Outcome) -> list[Event]:
    """Keep an answer that came after the final state."""
    if outcome.result is None or not Call.objects.filter(pk=order.pk, late_result=None).exists():
        return []
    result = payloads.store(PayloadKind.RESULT, outcome.result)
    digests = {"arguments": order.arguments_digest, "result": result.digest}
    return _late(order, hold, outcome, result.pk, digests)


def _late(order: Order, hold: Hold, outcome: Outcome, result_pk: int, digests: dict[str, str]) -> list[Event]:
    # A commit that was not confirmed is tried again: its own answer is not late.
    kept = {"state": outcome.state, "worker_uid": hold.worker_uid, "epoch": hold.epoch}
    rows = Call.objects.filter(pk=order.pk, late_result=None).exclude(**kept)
    if not rows.update(late_result_id=result_pk, version=F("version") + 1):
        return []
    _announce(order, hold, Call.objects.values_list("version", flat=True).get(pk=order.pk))
    details = {"late": True, "answer": outcome.state.value}
    return [_event(order, hold, AuditAction.CALL_FINISH, _AUDITED[outcome.state], details, digests)]


def end_strays(worker_uid: UUID, running: set[UUID]) -> list[Event]:
    """End calls that are ours by the database and that this worker never learned to be its own."""
    before = timezone.now() - STRAY_AFTER
    mine = Call.objects.filter(worker_uid=worker_uid, state=CallState.SENT, sent_at__lt=before)
    strays = [uid for uid in mine.values_list("uid", flat=True)[:500] if uid not in running]
    calls = end_now(strays, _STRAY)
    for call in calls:
        announce(call)
    return [finish_event(call, _STRAY, Actor(call.user_id, call.user_name)) for call in calls]


def _running(order: Order, hold: Hold) -> Any:
    mine = {"worker_uid": hold.worker_uid, "epoch": hold.epoch}
    return Call.objects.filter(pk=order.pk, state=CallState.SENT, **mine)


# --- telling ---------------------------------------------------------------------------------------------------------
def announce(call: Call) -> None:
    """Tell the pages once the current transaction is committed."""
    uid, version, server_uid = call.uid, call.version, call.server.uid if call.server else None
    transaction.on_commit(lambda: bus.call_changed(uid, version, server_uid))


def _announce(order: Order, hold: Hold, version: int, *, passing: bool = False) -> None:
    transaction.on_commit(partial(bus.call_changed, order.uid, version, hold.server_uid, passing=passing))


def _event(
    order: Order,
    hold: Hold,
    action: AuditAction,
    outcome: AuditOutcome,
    details: dict[str, Any],
    digests: dict[str, str] | None = None,
) -> Event:
    return Event(
        action=action,
        outcome=outcome,
        actor=order.actor,
        server=ServerRef(hold.server_uid, hold.server_name),
        identity_name=hold.identity_name,
        subject=order.target[:300],
        call_uid=order.uid,
        details={"method": order.method, **details},
        digests=digests or {"arguments": order.arguments_digest},
    )

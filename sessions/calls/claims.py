"""The worker's side of a call: the claim before its bytes leave, its attempts, its one final state.

Each change is one conditional UPDATE in the caller's transaction and returns its audit events. No events means that
another process was faster and nothing may follow. `final_states` has the final states that are set without an answer, by any process.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from servers.audit import payload_privacy, payloads
from servers.audit.proof.notes import stamp
from servers.audit.record import Actor, Event, ServerRef
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, DefinitionKind, PayloadKind
from servers.models import Payload
from servers.storable import storable
from sessions import hints
from sessions.calls import agent_calls, statements
from sessions.calls.agent_calls import CallingAgent
from sessions.calls.final_states import FinalState, announce, elapsed_ms, end_now, finish_event
from sessions.calls.operations import operation_of
from sessions.connections.lifecycle import AUDITED_CHARS, Lease
from sessions.enums import CallState
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.mcp.core.refusals import without_words
from sessions.models import Attempt, Call

log = structlog.get_logger(__name__)
TEXT_CHARS = 4_000
DATA_CHARS = 64 * 1024
#: after this time a sent call that its worker does not handle is ended: a claim may still be committed that long
UNHANDLED_AFTER = timedelta(seconds=15)
_AUDITED: Mapping[CallState, AuditOutcome] = {
    CallState.SUCCEEDED: AuditOutcome.OK,
    CallState.TOOL_ERROR: AuditOutcome.TOOL_ERROR,
    CallState.RPC_ERROR: AuditOutcome.RPC_ERROR,
    CallState.FAILED: AuditOutcome.FAILED,
    CallState.CANCELLED: AuditOutcome.CANCELLED,
    CallState.OUTCOME_UNKNOWN: AuditOutcome.UNKNOWN,
}
_UNCONFIRMED_CLAIM = FinalState(
    CallState.SENT,
    CallState.FAILED,
    AuditOutcome.FAILED,
    "The database did not confirm in time that this call may be sent. It did not reach the server.",
)
_OUTCOME_LOST = FinalState(
    CallState.SENT,
    CallState.OUTCOME_UNKNOWN,
    AuditOutcome.UNKNOWN,
    "mcpadmin failed while it ran this call, so its answer is lost. The tool may have run.",
)


@dataclass(frozen=True)
class PendingCall:
    """A requested call as its worker reads it. `arguments` is JSON text. `definition` is the tool's definition as the
    server sent it, empty for other methods."""

    pk: int
    uid: UUID
    session_id: int
    method: str
    target: str
    arguments: str
    arguments_digest: str
    actor: Actor
    definition: str = field(default="", repr=False)
    as_task: bool = False
    argument_bytes: int = 0
    sent_at: datetime | None = None
    #: of the stored arguments, if values in them are masked
    redacted_id: int | None = None
    #: None for a person's call
    agent: CallingAgent | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Upstream:
    """How a call went over the wire: the id of its last request, its trace context (W3C), era and revision of the
    session."""

    request_id: str = ""
    traceparent: str = ""
    era: str = ""
    revision: str = ""


@dataclass(frozen=True)
class Required:
    state: str | None


@dataclass(frozen=True)
class CallOutcome:
    """How a call ended. `result` is the JSON text to store, already without secrets and redacted."""

    state: CallState
    result: str | None = None
    fault: str = ""
    detail: str = ""
    error_code: int | None = None
    error_message: str = ""
    error_data: str = ""
    schema_violation: str = ""
    #: whether the result matches the tool's output schema; None: there is none, or it could not be checked
    schema_valid: bool | None = None
    #: it did not succeed, and how far the server got is unknown
    may_have_run: bool = False
    upstream: Upstream = Upstream()
    #: values in `result` that the privacy rules masked
    redacted: int = 0
    #: the server requires input of the agent, and this back with it; None: it gave no state
    required: "Required | None" = field(default=None, repr=False)

    @property
    def has_large_result(self) -> bool:
        """So that `packed` is worth a thread of its own."""
        return self.result is not None and payloads.is_large(self.result)

    def fields(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "fault": self.fault,
            "detail": storable(self.detail, TEXT_CHARS),
            "may_have_run": self.may_have_run,
            "error_code": self.error_code,
            "error_message": storable(self.error_message, TEXT_CHARS),
            "error_data": storable(self.error_data, DATA_CHARS),
            "schema_violation": storable(self.schema_violation, TEXT_CHARS),
            "schema_valid": self.schema_valid,
        }


def read_pending_call(uid: UUID) -> PendingCall | None:
    """The call, if it still waits to be sent. Only reads. Raises SealError."""
    payload_privacy.current()  # for the masks of its result, which are made in the event loop
    found = statements.waiting(uid)
    if found is None:
        return None
    call, arguments, definition = found
    text = payloads.to_send(arguments)
    if call.session_id is None or text is None:
        return None
    return PendingCall(
        pk=call.pk,
        uid=uid,
        session_id=call.session_id,
        method=call.method,
        target=call.target,
        arguments=text,
        arguments_digest=arguments.digest,
        redacted_id=arguments.pk if arguments.redacted else None,
        actor=Actor(call.user_id, call.user_name, way=call.way),
        argument_bytes=arguments.size,
        definition=definition if call.method == TOOLS_CALL else "",
        as_task=call.as_task,
        agent=agent_calls.agent_of(call),
    )


def waiting(session_ids: list[int], limit: int = 500) -> list[tuple[UUID, int]]:
    """Calls of these sessions that wait to be sent, each with its session. First the oldest of each session, then the
    second oldest: many calls of one session hide none of the others. Only reads."""
    payload_privacy.current()
    due = Call.objects.filter(session_id__in=session_ids, state=CallState.REQUESTED, deadline__gt=timezone.now())
    turn = Window(RowNumber(), partition_by="session_id", order_by="pk")
    return list(due.order_by(turn, "pk").values_list("uid", "session_id")[:limit])


def cancelled_by_people(worker_uid: UUID) -> list[UUID]:
    """Running calls of this worker that a person asked to cancel. Only reads."""
    asked = Call.objects.filter(worker_uid=worker_uid, state=CallState.SENT, cancel_requested_at__isnull=False)
    return list(asked.values_list("uid", flat=True)[:500])


# --- claim and attempts --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ClaimedCall:
    """`call` is None if it may not be sent: `events` then tell of its end. `too_early`: this list of the server has to be
    read first."""

    call: PendingCall | None
    events: list[Event]
    too_early: DefinitionKind | None = None


def take(uid: UUID, lease: Lease, *, unread: Collection[DefinitionKind] = ()) -> ClaimedCall | None:
    """Read a call that waits for the session of `lease`, and claim it. Both in one transaction, because each round trip
    to the database costs more than the statements. `unread`: lists of which the server announced a change that was not
    read yet, so calls of agents that concern them have to wait."""
    try:
        call = read_pending_call(uid)
    except SealError as problem:  # it stays requested, and expires unless the key ring is back in time
        log.error("calls.arguments_unreadable", call=str(uid), problem=str(problem))
        return None
    if call is None or call.session_id != lease.session_id:
        return None
    if call.agent is not None:
        if unread and (kind := operation_of(call.method).place(call.target)[0]) in unread:
            return ClaimedCall(None, [], too_early=kind)
        if why := agent_calls.barrier(call.agent.standing):
            return ClaimedCall(None, agent_calls.refuse(uid, why))
    call = replace(call, sent_at=timezone.now())
    events = claim(call, lease)
    return ClaimedCall(call, events) if events else None


def taken_events(taken: ClaimedCall | None) -> list[Event]:
    return taken.events if taken else []


def claim(call: PendingCall, lease: Lease) -> list[Event]:
    """The call's bytes may leave only after this is committed."""
    now = call.sent_at or timezone.now()
    version = statements.claim(call.pk, lease, now)
    if version is None:
        return []
    statements.insert_attempt(Attempt(call_id=call.pk, number=1, reason="first", at=now))
    if call.redacted_id is not None:
        payloads.sent(call.redacted_id)
    if call.agent is not None and call.agent.on_behalf.added:
        agent_calls.sent(call.pk)
    _announce(call, lease, version, passing=True)
    details, context = {"attempt": 1, "epoch": lease.epoch}, {"sent_at": stamp(now)}
    return [_event(call, lease, AuditAction.CALL_SEND, AuditOutcome.PENDING, details, context=context)]


def attempt(call: PendingCall, lease: Lease, number: int, reason: str) -> list[Event]:
    """A further attempt after a definite rejection. It may be sent only after this is committed."""
    if not _running(call, lease).update(version=F("version") + 1):
        return []
    Attempt.objects.create(call_id=call.pk, number=number, reason=reason[:60], at=timezone.now())
    details = {"attempt": number, "reason": reason[:60], "epoch": lease.epoch}
    return [_event(call, lease, AuditAction.CALL_SEND, AuditOutcome.PENDING, details)]


def progressed(
    call: PendingCall, lease: Lease, progress: float | None, total: float | None, message: str | None
) -> None:
    """Only the newest progress counts. The page has already received it, so the version stays."""
    words = storable(message or "", 500)
    _running(call, lease).update(progress=progress, progress_total=total, progress_message=words)


# --- the end ---------------------------------------------------------------------------------------------------------
def packed(outcome: CallOutcome) -> Payload | None:
    """The row of the result, compressed and sealed but not written. Of a large one to be made before `finish` or `late`:
    compressing in the writer's transaction would hold up everyone who writes. Slow: do not call in an event loop. Raises
    SealError."""
    if outcome.result is None:
        return None
    return payloads.made(PayloadKind.RESULT, outcome.result, redacted=outcome.redacted)


def finish(call: PendingCall, lease: Lease, outcome: CallOutcome, row: Payload | None = None) -> list[Event]:
    """Set the final state. If the call already has one, keep the result as late. `row`: from `packed`."""
    if row is not None and Payload.objects.filter(uid=row.uid).exists():
        return []  # written by an earlier try, whose commit was not confirmed
    result, outcome = _stored(outcome, row)
    now = timezone.now()
    duration = None if call.sent_at is None else elapsed_ms(call.sent_at, now)
    size = 0 if result is None else result.size
    ended = {
        "finished_at": now,
        "duration_ms": duration,
        "result_id": None if result is None else result.pk,
        "total_bytes": call.argument_bytes + size,
        **outcome.fields(),
    }
    digests = {"arguments": call.arguments_digest} | ({} if result is None else {"result": result.digest})
    if (version := statements.finish(call.pk, lease, ended)) is not None:
        if outcome.required is not None:
            agent_calls.required_input(call.pk, outcome.required.state)
        _announce(call, lease, version)
        details = {"state": outcome.state.value, "epoch": lease.epoch}
        if outcome.fault:
            # without the server's words: what stands in an event cannot be erased
            details |= {"fault": outcome.fault, "detail": without_words(outcome.detail)[:AUDITED_CHARS]}
        context = {"bytes_in": call.argument_bytes, "bytes_out": size, "duration_ms": duration} | vars(outcome.upstream)
        context["finished_at"] = stamp(now)
        return [_event(call, lease, AuditAction.CALL_FINISH, _AUDITED[outcome.state], details, digests, context)]
    return [] if result is None else _late(call, lease, outcome, result, digests)


def late(call: PendingCall, lease: Lease, outcome: CallOutcome, row: Payload | None = None) -> list[Event]:
    """Keep an answer that arrived after the final state. `row`: from `packed`."""
    if outcome.result is None or not Call.objects.filter(pk=call.pk, late_result=None).exists():
        return []
    result, outcome = _stored(outcome, row)
    if result is None:
        return []
    digests = {"arguments": call.arguments_digest, "result": result.digest}
    return _late(call, lease, outcome, result, digests)


def _stored(outcome: CallOutcome, row: Payload | None = None) -> tuple[Payload | None, CallOutcome]:
    """The payload of the result. A result that cannot be encrypted is not stored, and the call says so."""
    if outcome.result is None:
        return None, outcome
    if row is not None:
        return payloads.insert(row), outcome
    try:
        return payloads.store(PayloadKind.RESULT, outcome.result, redacted=outcome.redacted), outcome
    except SealError as problem:
        log.error("calls.result_not_encrypted", problem=str(problem))
        words = f"{outcome.detail} The result was not stored, because it cannot be encrypted. {problem}"
        return None, replace(outcome, detail=words.strip())


def _late(
    call: PendingCall, lease: Lease, outcome: CallOutcome, result: Payload, digests: dict[str, str]
) -> list[Event]:
    # A commit that was not confirmed is retried: the call's own answer is not a late one.
    kept = {"state": outcome.state, "worker_uid": lease.worker_uid, "epoch": lease.epoch}
    rows = Call.objects.filter(pk=call.pk, late_result=None).exclude(**kept)
    if not rows.update(late_result=result, version=F("version") + 1):
        result.delete()  # no call refers to it, so no retention would find it
        return []
    _announce(call, lease, Call.objects.values_list("version", flat=True).get(pk=call.pk))
    details = {"late": True, "answer": outcome.state.value}
    return [_event(call, lease, AuditAction.CALL_FINISH, _AUDITED[outcome.state], details, digests)]


def end_unhandled(worker_uid: UUID, running: Collection[UUID], unconfirmed: Collection[UUID]) -> list[Event]:
    """End calls that the database assigns to this worker, and that it does not handle. Only those whose claim was not
    confirmed to it did not reach their server."""
    now = timezone.now()
    # one of the future too: the clock was set back
    due = Q(sent_at__lt=now - UNHANDLED_AFTER) | Q(sent_at__gt=now + UNHANDLED_AFTER)
    mine = Call.objects.filter(due, worker_uid=worker_uid, state=CallState.SENT)
    events = []
    for uid in mine.values_list("uid", flat=True)[:500]:
        if uid in running:
            continue
        final = _UNCONFIRMED_CLAIM if uid in unconfirmed else _OUTCOME_LOST
        for call in end_now([uid], final):
            announce(call)
            events.append(finish_event(call, final, Actor(call.user_id, call.user_name, way=call.way)))
    return events


def _running(call: PendingCall, lease: Lease) -> Any:
    mine = {"worker_uid": lease.worker_uid, "epoch": lease.epoch}
    return Call.objects.filter(pk=call.pk, state=CallState.SENT, **mine)


# --- announcing ------------------------------------------------------------------------------------------------------
def _announce(call: PendingCall, lease: Lease, version: int, *, passing: bool = False) -> None:
    transaction.on_commit(partial(hints.call_changed, call.uid, version, lease.server_uid, passing=passing))


def _event(
    call: PendingCall,
    lease: Lease,
    action: AuditAction,
    outcome: AuditOutcome,
    details: dict[str, Any],
    digests: dict[str, str] | None = None,
    context: dict[str, Any] | None = None,
) -> Event:
    return Event(
        action=action,
        outcome=outcome,
        actor=call.actor,
        server=ServerRef(lease.server_uid, lease.server_name),
        identity_name=lease.identity_name,
        subject=call.target[:300],
        call_uid=call.uid,
        details={"method": call.method, **details},
        digests=digests or {"arguments": call.arguments_digest},
        context={"session": str(lease.session_uid), "epoch": lease.epoch, **(context or {})},
    )

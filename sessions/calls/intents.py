"""The intent of a call: the audit writer writes it in one transaction, and it is announced after the commit."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from servers.audit import payload_privacy, payloads
from servers.audit.proof.notes import stamp
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable
from servers.commit_hooks import after_commit
from servers.crypto import SealError
from servers.enums import AuditAction, AuditOutcome, PayloadKind, RedactedPart
from servers.models import Payload, Unredacted
from servers.privacy import redaction
from servers.randomness import random_uuid
from servers.schemas import secrets
from sessions import hints
from sessions.calls import final_states, statements
from sessions.calls.arguments import ArgumentProblem
from sessions.calls.targets import Target
from sessions.connections import commands, lifecycle
from sessions.enums import CallState, Desired
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.models import Call, McpSession

_ARGUMENTS = statements.insert_call.place("arguments_id")


@dataclass(frozen=True)
class Hold:
    """A person must approve the call before it may be sent. `why`: a sentence that names the rule."""

    why: str
    seconds: float
    destructive: bool = False


@dataclass(frozen=True)
class AgentPart:
    """What belongs to a call of an agent besides its row. `write` runs in the call's transaction and may raise, which
    refuses the call. `details` stand in the event of the request. `check` takes the place of a person's confirmation:
    it may raise Rejected, or hold the call."""

    write: Callable[[Call, Hold | None], None]
    details: Mapping[str, Any]
    check: Callable[[Target], Hold | None]


class AlreadyPlaced(Exception):
    """The same request was accepted a moment ago, or its call still runs: `call` is that call; no new one was made."""

    def __init__(self, call: Call) -> None:
        super().__init__(f"Call #{call.pk} was already started by the same request. No new call was started.")
        self.call = call


@dataclass(frozen=True)
class Origin:
    """What a person runs again with one click. `twin` runs in the call's transaction and returns the call of the same
    click, even in another tab, if there is one; it locks what all such clicks share. `saved`: the saved call."""

    twin: Callable[[], Call | None]
    saved: UUID | None = None


@dataclass(frozen=True)
class StoredArguments:
    """The payload, not written yet, and what it stands for where values were masked. `text` has the masks."""

    text: str
    payload: Payload
    unredacted: Unredacted | None


def redacted_arguments(text: str, method: str, target: Target) -> StoredArguments:
    """Raises AuditUnavailable if something must be encrypted and the key ring cannot be read."""
    schema = (
        target.definition.get("inputSchema")
        if method == TOOLS_CALL and secrets.may_hold_secret(target.body or "")
        else None
    )
    subject = redaction.Subject(RedactedPart.ARGUMENTS, target.server_id, target.name, schema)
    masked, count = redaction.redacted(text, subject, payload_privacy.current())
    try:
        payload = payloads.made(PayloadKind.ARGUMENTS, masked, redacted=count)
        return StoredArguments(masked, payload, payloads.unredacted(text) if count else None)
    except SealError as problem:
        raise AuditUnavailable(f"The arguments cannot be encrypted, so the call was refused. {problem}") from problem


@dataclass(frozen=True)
class Intent:
    """A call that passed every check and is not written yet. Its row values are computed before the transaction begins,
    because all writers of the database share that lock."""

    actor: Actor
    target: Target
    call: Call
    payload_values: list[Any]
    call_values: list[Any]
    unredacted: Unredacted | None = None
    repeats: Call | None = None
    details: dict[str, Any] = field(default_factory=dict)
    agent_part: AgentPart | None = None
    hold: Hold | None = None
    origin: Origin | None = None
    #: acquired, and never released, by what comes first: the commit, or the refusal that the caller received
    decided: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self) -> None:
        """The caller was notified of the refusal. If the commit succeeds nevertheless, the call is withdrawn."""
        self.decided.acquire(blocking=False)

    def insert(self) -> bool:
        """Returns whether the call's session is closed."""
        self.call.arguments = payloads.insert.write(self.call.arguments, self.payload_values)
        if self.unredacted is not None:
            self.unredacted.payload_id = self.call.arguments.pk
            payloads.insert_unredacted(self.unredacted)
        values = [*self.call_values[:_ARGUMENTS], self.call.arguments.pk, *self.call_values[_ARGUMENTS + 1 :]]
        return statements.place(self.call, values)


def intent_of(
    actor: Actor,
    method: str,
    target: Target,
    arguments: StoredArguments,
    deadline: datetime,
    repeats: Call | None,
    doubt: ArgumentProblem,
    *,
    as_task: bool = False,
    agent_part: AgentPart | None = None,
    hold: Hold | None = None,
    origin: Origin | None = None,
) -> Intent:
    """`doubt`: what a person was asked about before these arguments. Never call this in the writer's
    transaction."""
    call = Call(
        uid=random_uuid(),
        session_id=target.session_id,
        server_id=target.server_id,
        server_name=target.server_name,
        identity_id=target.identity_id,
        identity_name=target.identity_name,
        personal=target.personal,
        user_id=actor.id,
        user_name=actor.name,
        way=actor.way,
        method=method,
        target=target.name,
        definition_digest=target.digest or "",
        arguments=arguments.payload,
        repeats=repeats,
        as_task=as_task,
        doubt=doubt.kind,
        saved=origin.saved if origin else None,
        state=CallState.HELD if hold is not None else CallState.REQUESTED,
        deadline=deadline,
        created_at=timezone.now(),
    )
    call.argument_bytes = call.total_bytes = call.arguments.size
    call.preview = payloads.preview(call.arguments, arguments.text)
    values = payloads.insert.values(call.arguments), statements.insert_call.values(call)
    details: dict[str, Any] = {doubt.kind.value: doubt.reason} if doubt else {}
    details |= {"as_task": True} if as_task else {}
    details |= agent_part.details if agent_part else {}
    return Intent(actor, target, call, *values, arguments.unredacted, repeats, details, agent_part, hold, origin)


def write(intent: Intent) -> Call:
    """Runs in the writer's transaction. Raises AlreadyPlaced."""
    if intent.origin is not None and (twin := intent.origin.twin()) is not None:
        raise AlreadyPlaced(twin)
    closed = intent.insert()
    if closed and intent.hold is None:
        request_session(intent.target.session_id)
    if intent.agent_part is not None:
        intent.agent_part.write(intent.call, intent.hold)
    after_commit(_announce, intent, closed)
    return intent.call


def request_session(session_id: int) -> None:
    """A call requests its session. The session of a server that was just disabled stays closed, and the call
    expires."""
    # PostgreSQL's UPDATE would pass over a row that a worker is just closing (lifecycle.close_when_idle)
    McpSession.objects.select_for_update(no_key=True).filter(pk=session_id).values_list("pk", flat=True).first()
    closed = McpSession.objects.filter(lifecycle.IN_SERVICE, pk=session_id, desired=Desired.CLOSED)
    if closed.update(desired=Desired.OPEN, version=F("version") + 1):
        lifecycle.unowned(session_id)


def requested(intent: Intent, call: Call) -> list[Event]:
    repeats = {"repeats": str(intent.repeats.uid)} if intent.repeats else {}
    request = Event(
        action=AuditAction.CALL_REQUEST,
        outcome=AuditOutcome.PENDING,
        actor=intent.actor,
        server=intent.target.server,
        identity_name=call.identity_name,
        subject=call.target[:300],
        call_uid=call.uid,
        details={"method": call.method, **repeats, **intent.details},
        digests={"arguments": call.arguments.digest},
        context={
            "session": str(intent.target.session_uid),
            "epoch": intent.target.epoch,
            "bytes_in": call.argument_bytes,
            "created_at": stamp(call.created_at),
        },
    )
    if intent.hold is None:
        return [request]
    details = {"method": call.method, "reason": intent.hold.why, "definition": call.definition_digest}
    return [request, replace(request, action=AuditAction.APPROVAL_ASK, details=details, context={})]


def _announce(intent: Intent, closed: bool) -> None:
    """`closed`: the session was, when the call was written. Runs in the writer's thread after the commit: nothing here may wait."""
    call, target = intent.call, intent.target
    if not intent.decided.acquire(blocking=False):
        final_states.end([call.uid], final_states.REFUSED_LATE)
        return
    if intent.hold is not None:
        hints.call_changed(call.uid, call.version, target.server_uid)  # the agent's request, and lists of calls
    elif target.owner_uid is not None and not closed:
        until = call.deadline.timestamp()
        hints.wake_worker(target.owner_uid, "call", call.uid, until, target.session_id)
    else:
        hints.later(partial(commands.wake_owner, target.session_uid))
    hints.call_of_server_changed(call.uid, target.server_uid)

"""The intent of a call: written by the audit writer in one transaction, announced once it is committed."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.db.models import F
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import Actor, Event, ServerRef
from servers.audit.writer import AuditUnavailable, writer
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions import bus
from sessions.domain import commands, endings
from sessions.domain.targets import Target
from sessions.enums import Desired
from sessions.models import Call, McpSession

Verdict = Literal["accepted", "refused"]


class _Settlement:
    """Who was first: the commit, or the caller who gave up waiting for it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.verdict: Verdict | None = None

    def settle(self, verdict: Verdict) -> Verdict:
        with self._guard:
            self.verdict = self.verdict or verdict
            return self.verdict


@dataclass(frozen=True)
class Intent:
    """A call that passed every check and is not written yet. `arguments` is JSON text."""

    actor: Actor
    target: Target
    arguments: str
    deadline: datetime
    repeats: Call | None = None
    details: dict[str, Any] = field(default_factory=dict)
    settlement: _Settlement = field(default_factory=_Settlement)


def submit(intent: Intent) -> "Future[Call]":
    """Raises WriterBusy at once when the writer's queue is full."""
    future: Future[Call] = writer().submit(partial(_write, intent), lambda call: [_requested(intent, call)])
    future.add_done_callback(partial(_announce, intent))
    return future


def give_up(intent: Intent, future: "Future[Call]") -> Call:
    """After waiting in vain: the call is refused, unless its commit was faster than this."""
    if intent.settlement.settle("refused") == "accepted":
        return future.result(0)
    raise AuditUnavailable("The audit log could not be written within 2 seconds, so the call was not made.")


def _write(intent: Intent) -> Call:
    if intent.settlement.verdict == "refused":
        raise AuditUnavailable("given up before it was written")
    target, server = intent.target, intent.target.server
    if target.session.desired != Desired.OPEN:
        _want_open(target.session)
    call = Call(
        session=target.session,
        server=server,
        server_name=server.name,
        identity=target.session.identity,
        identity_name=target.session.identity.name,
        user_id=intent.actor.id,
        user_name=intent.actor.name,
        target=target.definition.key,
        definition_digest=target.definition.digest,
        arguments=payloads.store(PayloadKind.ARGUMENTS, intent.arguments),
        repeats=intent.repeats,
        deadline=intent.deadline,
        created_at=timezone.now(),
    )
    call.save(force_insert=True)
    return call


def _want_open(session: McpSession) -> None:
    """A call is a wish for its session; a server that was disabled a moment ago stays closed and the call lapses."""
    closed = McpSession.objects.filter(pk=session.pk, desired=Desired.CLOSED, server__enabled=True, server__archived_at=None)
    closed.update(desired=Desired.OPEN, version=F("version") + 1)


def _requested(intent: Intent, call: Call) -> Event:
    repeats = {"repeats": str(intent.repeats.uid)} if intent.repeats else {}
    return Event(
        action=AuditAction.CALL_REQUEST,
        outcome=AuditOutcome.PENDING,
        actor=intent.actor,
        server=ServerRef.of(intent.target.server),
        identity_name=call.identity_name,
        subject=call.target[:300],
        call_uid=call.uid,
        details={**repeats, **intent.details},
        digests={"arguments": call.arguments.digest},
    )


def _announce(intent: Intent, future: "Future[Call]") -> None:
    """In the writer's thread after the commit: nothing here may wait."""
    if future.cancelled() or future.exception() is not None:
        return
    call = future.result()
    if intent.settlement.settle("accepted") == "refused":
        endings.end([call.uid], endings.REFUSED_LATE)
        return
    bus.call_changed(call.uid, call.version, intent.target.server.uid)
    target = intent.target
    if target.owner_uid is not None and target.session.desired == Desired.OPEN:
        bus.ring_later(target.owner_uid, "call", call.uid, target.session.epoch, call.deadline.timestamp())
    else:
        bus.later(partial(commands.summon, target.session.uid))

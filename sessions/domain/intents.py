"""The intent of a call: written by the audit writer in one transaction, announced once it is committed."""

import threading
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import Actor, Event
from servers.audit.statements import Insert
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions import bus
from sessions.domain import commands, endings, lifecycle
from sessions.domain.targets import Target
from sessions.enums import Desired
from sessions.models import Call, McpSession

Verdict = Literal["accepted", "refused"]
_insert = Insert(Call)
_ARGUMENTS = _insert.place("arguments_id")


class _Settlement:
    """Who was first: the commit, or the caller who was told that the call is refused."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._verdict: Verdict | None = None

    def settle(self, verdict: Verdict) -> Verdict:
        with self._guard:
            self._verdict = self._verdict or verdict
            return self._verdict


@dataclass(frozen=True)
class Intent:
    """A call that passed every check and is not written yet. The values of its rows are made before the transaction
    begins, whose lock all writers of the database share."""

    actor: Actor
    target: Target
    call: Call
    payload_values: list[Any]
    call_values: list[Any]
    repeats: Call | None = None
    details: dict[str, Any] = field(default_factory=dict)
    settlement: _Settlement = field(default_factory=_Settlement)

    def refuse(self) -> None:
        """The caller was told that the call is not made: should its commit come true after all, it is taken back."""
        self.settlement.settle("refused")

    def insert(self) -> None:
        self.call.arguments = payloads.insert.write(self.call.arguments, self.payload_values)
        _insert.write(
            self.call, [*self.call_values[:_ARGUMENTS], self.call.arguments.pk, *self.call_values[_ARGUMENTS + 1 :]]
        )


def intent_of(
    actor: Actor, method: str, target: Target, arguments: str, deadline: datetime, repeats: Call | None, unchecked: str
) -> Intent:
    """`arguments` is JSON text; `unchecked` says why it was not checked. Never in the writer's transaction."""
    call = Call(
        session=McpSession(pk=target.session_id, owner_id=target.owner_id),
        server_id=target.server_id,
        server_name=target.server_name,
        identity_id=target.identity_id,
        identity_name=target.identity_name,
        personal=target.personal,
        user_id=actor.id,
        user_name=actor.name,
        method=method,
        target=target.name,
        definition_digest=target.digest or "",
        arguments=payloads.made(PayloadKind.ARGUMENTS, arguments),
        repeats=repeats,
        deadline=deadline,
        created_at=timezone.now(),
    )
    values = payloads.insert.values(call.arguments), _insert.values(call)
    return Intent(actor, target, call, *values, repeats, {"unchecked": unchecked} if unchecked else {})


def write(intent: Intent) -> Call:
    """In the writer's transaction."""
    if not intent.target.wanted:
        _want_open(intent.target.session_id)
    intent.insert()
    transaction.on_commit(partial(_announce, intent, intent.call), robust=True)
    return intent.call


def _want_open(session_id: int) -> None:
    """A call is a wish for its session; a server that was disabled a moment ago stays closed and the call lapses."""
    closed = McpSession.objects.filter(lifecycle.IN_SERVICE, pk=session_id, desired=Desired.CLOSED)
    if closed.update(desired=Desired.OPEN, version=F("version") + 1):
        lifecycle.unowned(session_id)


def requested(intent: Intent, call: Call) -> list[Event]:
    repeats = {"repeats": str(intent.repeats.uid)} if intent.repeats else {}
    return [
        Event(
            action=AuditAction.CALL_REQUEST,
            outcome=AuditOutcome.PENDING,
            actor=intent.actor,
            server=intent.target.server,
            identity_name=call.identity_name,
            subject=call.target[:300],
            call_uid=call.uid,
            details={"method": call.method, **repeats, **intent.details},
            digests={"arguments": call.arguments.digest},
        )
    ]


def _announce(intent: Intent, call: Call) -> None:
    """In the writer's thread after the commit: nothing here may wait."""
    if intent.settlement.settle("accepted") == "refused":
        endings.end([call.uid], endings.REFUSED_LATE)
        return
    target = intent.target
    if target.owner_uid is not None and target.wanted:
        until = call.deadline.timestamp()
        bus.ring_later(target.owner_uid, "call", call.uid, target.epoch, until, target.session_id)
    else:
        bus.later(partial(commands.summon, target.session_uid))
    bus.call_changed(call.uid, call.version, target.server_uid, passing=True)

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
from servers.audit.record import Actor, Event, ServerRef
from servers.enums import AuditAction, AuditOutcome, PayloadKind
from sessions import bus
from sessions.domain import commands, endings
from sessions.domain.targets import Target
from sessions.enums import Desired
from sessions.models import Call, McpSession

Verdict = Literal["accepted", "refused"]


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
    """A call that passed every check and is not written yet. `arguments` is JSON text."""

    actor: Actor
    target: Target
    arguments: str
    deadline: datetime
    repeats: Call | None = None
    details: dict[str, Any] = field(default_factory=dict)
    settlement: _Settlement = field(default_factory=_Settlement)

    def refuse(self) -> None:
        """The caller was told that the call is not made: should its commit come true after all, it is taken back."""
        self.settlement.settle("refused")


def write(intent: Intent) -> Call:
    """In the writer's transaction."""
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
    transaction.on_commit(partial(_announce, intent, call), robust=True)
    return call


def _want_open(session: McpSession) -> None:
    """A call is a wish for its session; a server that was disabled a moment ago stays closed and the call lapses."""
    closed = McpSession.objects.filter(pk=session.pk, desired=Desired.CLOSED, server__enabled=True, server__archived_at=None)
    closed.update(desired=Desired.OPEN, version=F("version") + 1)


def requested(intent: Intent, call: Call) -> list[Event]:
    repeats = {"repeats": str(intent.repeats.uid)} if intent.repeats else {}
    return [
        Event(
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
    ]


def _announce(intent: Intent, call: Call) -> None:
    """In the writer's thread after the commit: nothing here may wait."""
    if intent.settlement.settle("accepted") == "refused":
        endings.end([call.uid], endings.REFUSED_LATE)
        return
    target = intent.target
    bus.call_changed(call.uid, call.version, target.server.uid)
    if target.owner_uid is not None and target.session.desired == Desired.OPEN:
        bus.ring_later(target.owner_uid, "call", call.uid, target.session.epoch, call.deadline.timestamp())
    else:
        bus.later(partial(commands.summon, target.session.uid))

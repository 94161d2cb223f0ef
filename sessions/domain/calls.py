"""Placing, cancelling and repeating calls: the one place in which every door ends (socket, form, repeat).

A call is accepted when its intent (row, arguments, audit event) is committed; before that no byte may leave, and after
that the worker is rung. Whatever happens to the ring, the tick of the session's owner finds the row.
"""

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable, writer
from servers.domain import rights
from servers.enums import AuditAction, AuditOutcome
from servers.models import Server
from sessions import bus
from sessions.domain.arguments import Given, Rejected
from sessions.domain.endings import (
    CANCELLED_BEFORE,
    end_now,
    expire_due,
    finish_event,
    server_ref,
    tell,
    wish_cancelled,
)
from sessions.domain.intents import Intent, intent_of, requested, write
from sessions.domain.operations import operation_of
from sessions.domain.targets import Target, find_target
from sessions.enums import CallState
from sessions.models import Call
from sessions.protocol.methods import TOOLS_CALL
from sessions.schemas import jsontext

__all__ = ["AuditUnavailable", "Given", "Rejected", "aplace", "cancel", "check", "expire_due", "place", "repeat"]

DURABLE_SECONDS = 2.0
#: how long a call may wait for its session before it lapses, on top of the server's own connect time-out
WAIT_SECONDS = 30
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


# --- placing ---------------------------------------------------------------------------------------------------------
def place(
    actor: Actor,
    user: Any,
    server: Server,
    target: str,
    given: Given,
    *,
    method: str = TOOLS_CALL,
    repeats: Call | None = None,
) -> Call:
    """Place a call and return its committed row. Not inside of a transaction.

    Raises Http404 and access.Denied (recorded), Rejected (server, target, arguments or confirmation) and
    AuditUnavailable (the intent was not durable within 2 s: the call is refused).
    """
    intent = check(actor, user, server.uid, target, given, method=method, repeats=repeats)
    with _refusing(intent):
        return writer().submit_and_wait(partial(write, intent), partial(requested, intent), DURABLE_SECONDS)


async def aplace(
    actor: Actor, user: Any, server_uid: UUID, target: str, given: Given, *, run: Run, method: str = TOOLS_CALL
) -> Call:
    """`place` for a loop: `run` carries the checks (database, JSON Schema) to a thread of the caller's choice."""

    def submit() -> "tuple[Intent, Future[Call]]":
        """In that thread too: the writer is at work while the loop is still being woken."""
        intent = check(actor, user, server_uid, target, given, method=method)
        return intent, writer().submit(partial(write, intent), partial(requested, intent))

    intent, future = await run(submit)
    with _refusing(intent):
        return await writer().durable(future, DURABLE_SECONDS)


@contextmanager
def _refusing(intent: Intent) -> Iterator[None]:
    try:
        yield
    except AuditUnavailable:
        intent.refuse()
        raise
    except IntegrityError as problem:
        raise Rejected("The server was deleted meanwhile.") from problem


def check(
    actor: Actor,
    user: Any,
    server_uid: UUID,
    name: str,
    given: Given,
    *,
    method: str = TOOLS_CALL,
    repeats: Call | None = None,
) -> Intent:
    """Everything that may refuse a call, in a thread that may wait for the database and the schema checker."""
    operation = operation_of(method)
    target = find_target(user, actor, server_uid, operation, name)
    arguments, unchecked = operation.read(name, target.definition, given)
    _require_confirmation(target, operation.destructive(target.definition), given, unchecked)
    text = jsontext.dumps(arguments, indent=None)
    deadline = timezone.now() + timedelta(seconds=target.connect_seconds + WAIT_SECONDS)
    return intent_of(actor, method, target, text, deadline, repeats, unchecked)


def _require_confirmation(target: Target, destructive: bool, given: Given, unchecked: str) -> None:
    if destructive and given.confirm != target.name:
        raise Rejected("This tool is marked destructive. Type its name to confirm, then run it again.", confirm="name")
    if unchecked and not given.confirm:
        message = f"The arguments cannot be checked against the tool's schema ({unchecked}). Confirm to run it anyway."
        raise Rejected(message, confirm="unchecked")


# --- afterwards ------------------------------------------------------------------------------------------------------
def cancel(actor: Actor, user: Any, call: Call) -> bool:
    """Cancel a call, or ask its worker to. False when it was over, or somebody had asked before.

    A requested call ends at once; for one that was sent the wish stands in the row and the worker is rung. Whether the
    tool stopped is the server's affair: MCP has no answer to a cancellation. Raises access.Denied and AuditUnavailable.
    """
    rights.require(user, actor, "call_tool", call.server, subject=call.target)
    done = writer().submit_and_wait(partial(_cancel, actor, call.uid), partial(_cancel_events, actor), DURABLE_SECONDS)
    return done is not None


def _cancel(actor: Actor, uid: UUID) -> Call | None:
    """The changed row, or None where nothing was left to cancel."""
    ended = end_now([uid], CANCELLED_BEFORE)
    if not ended and not wish_cancelled([uid], actor.name):
        return None
    call = ended[0] if ended else Call.objects.select_related("server").get(uid=uid)
    transaction.on_commit(partial(_cancelled, call), robust=True)
    return call


def _cancel_events(actor: Actor, call: Call | None) -> list[Event]:
    if call is None:
        return []
    asked = Event(
        action=AuditAction.CALL_CANCEL,
        outcome=AuditOutcome.OK,
        actor=actor,
        server=server_ref(call),
        identity_name=call.identity_name,
        subject=call.target[:300],
        call_uid=call.uid,
        details={"method": call.method},
    )
    return [asked, finish_event(call, CANCELLED_BEFORE, actor)] if call.state == CallState.CANCELLED else [asked]


def _cancelled(call: Call) -> None:
    tell(call)
    if call.worker_uid is not None:
        bus.ring_later(call.worker_uid, "cancel", call.uid, call.epoch)


def repeat(actor: Actor, user: Any, call: Call, *, confirm: str | bool = "") -> Call:
    """A new call with the arguments of `call`, linked to it. The old one stays as it is."""
    if not may_read(user, call):
        raise access.Denied("view_payload", call.server)
    if call.server is None:
        raise Rejected(f"{call.server_name} was deleted; its calls cannot be run again.")
    text = payloads.read(call.arguments)
    if text is None:
        raise Rejected("The arguments of this call were erased; fill in the form again.")
    given = Given(text=text, confirm=confirm)
    return place(actor, user, call.server, call.target, given, method=call.method, repeats=call)


def may_read(user: Any, call: Call) -> bool:
    """Arguments and results: whoever made the call, and whoever holds the right."""
    return call.user_id == user.pk or access.may_read_payloads(user)

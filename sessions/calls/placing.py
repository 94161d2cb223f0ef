"""Placing and cancelling calls. Sockets, forms and repetitions all come here.

A call is accepted when its intent (row, arguments, audit event) is committed. No byte may leave before that; after
that, `intents` wakes the worker. If the wake-up is lost, the tick of the session's owner finds the row.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.db import IntegrityError
from django.utils import timezone

from servers import permissions
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable, WriterBusy, writer
from servers.commit_hooks import after_commit
from servers.enums import AuditAction, AuditOutcome
from servers.json import text as json_text
from servers.kit.visible import is_typed
from servers.loops import result_of, wait_for_both
from servers.models import Server
from servers.schemas import checker
from sessions import hints
from sessions.calls.arguments import ArgumentProblem, Rejected, SubmittedArguments
from sessions.calls.final_states import (
    CANCELLED_BEFORE,
    REFUSED_UNCONFIRMED,
    end,
    end_now,
    event_of,
    finish_event,
    notify,
    request_cancel,
)
from sessions.calls.intents import (
    AgentPart,
    AlreadyPlaced,
    Intent,
    Origin,
    intent_of,
    redacted_arguments,
    requested,
    write,
)
from sessions.calls.operations import operation_of
from sessions.calls.targets import Target, find_target
from sessions.enums import CallState
from sessions.mcp.core.methods import TOOLS_CALL
from sessions.models import Call

__all__ = [
    "AlreadyPlaced",
    "AuditUnavailable",
    "MaybePlaced",
    "Origin",
    "Rejected",
    "SubmittedArguments",
    "aplace",
    "cancel",
    "check",
    "place",
]

DURABLE_SECONDS = 2.0
#: how long a call may wait for its session before it expires, on top of the server's own connect timeout
WAIT_SECONDS = 30
Begin = Callable[[Callable[[], Any]], "Future[Any]"]


class MaybePlaced(AuditUnavailable):
    """It is unknown whether the intent of `call` was committed, so the call may still be sent."""

    def __init__(self, words: str, call: UUID) -> None:
        super().__init__(words, unchanged=False)
        self.call = call


# --- placing ---------------------------------------------------------------------------------------------------------
def place(
    actor: Actor,
    user: Any,
    server: Server,
    target: str,
    given: SubmittedArguments,
    *,
    method: str = TOOLS_CALL,
    repeats: Call | None = None,
    origin: Origin | None = None,
) -> Call:
    """Place a call and return its committed row. Not inside a transaction.

    Raises Http404 and access.Denied (recorded), Rejected (server, target, arguments or confirmation) and
    AuditUnavailable (the intent was not durable within 2 s: the call is refused; MaybePlaced if it may have been
    committed anyway). With an `origin` also AlreadyPlaced.
    """
    intent = check(actor, user, server.uid, target, given, method=method, repeats=repeats, origin=origin)
    with _refusing(intent):
        return writer().submit_and_wait(partial(write, intent), partial(requested, intent), DURABLE_SECONDS)


async def aplace(
    actor: Actor,
    user: Any,
    server_uid: UUID,
    target: str,
    given: SubmittedArguments,
    *,
    begin: Begin,
    begin_slow: Begin,
    method: str = TOOLS_CALL,
    agent_part: AgentPart | None = None,
) -> Call:
    """`place` for an event loop. `begin` starts the checks in a thread that waits for nothing but the database.
    `begin_slow` starts those that need the schema checker's child process in a thread that may wait for it.
    """

    def submit() -> _Submitted:
        """The submit runs in that thread too, so the loop is woken only when the call is durable."""
        intent = check(actor, user, server_uid, target, given, method=method, agent_part=agent_part)
        return _Submitted(writer().submit(partial(write, intent), partial(requested, intent)), intent, time.monotonic())

    def submit_without_waiting() -> _Submitted:
        with checker.without_waiting():
            return submit()

    try:
        return await _durable(begin(submit_without_waiting))
    except checker.WouldBlock:
        return await _durable(begin_slow(submit))


class _Submitted(NamedTuple):
    """`at`: of the monotonic clock."""

    future: "Future[Call]"
    intent: Intent
    at: float


async def _durable(submitting: "Future[_Submitted]") -> Call:
    await wait_for_both(submitting, attrgetter("future"), DURABLE_SECONDS)
    submitted = await result_of(submitting)
    with _refusing(submitted.intent):
        left = submitted.at + DURABLE_SECONDS - time.monotonic()
        return await writer().durable(submitted.future, max(0.0, left))


@contextmanager
def _refusing(intent: Intent) -> Iterator[None]:
    try:
        yield
    except AuditUnavailable as problem:
        intent.refuse()
        if problem.unchanged:
            raise
        uid = intent.call.uid
        with suppress(WriterBusy):  # `refuse` came too late: the commit was announced, or its response was lost
            end([uid], REFUSED_UNCONFIRMED)
        raise MaybePlaced(str(problem), uid) from problem
    except IntegrityError as problem:
        raise Rejected("The server has been deleted.") from problem


def check(
    actor: Actor,
    user: Any,
    server_uid: UUID,
    name: str,
    given: SubmittedArguments,
    *,
    method: str = TOOLS_CALL,
    repeats: Call | None = None,
    agent_part: AgentPart | None = None,
    origin: Origin | None = None,
) -> Intent:
    """Everything that may refuse a call: `find_target` checks the permission, `operation.read` the arguments. Call in a thread that may wait for the database and the schema checker."""
    operation = operation_of(method)
    target = find_target(user, actor, server_uid, operation, name)
    # First: an agent that may not call it is not told which arguments it takes.
    hold = agent_part.check(target) if agent_part is not None else None
    arguments, doubt = operation.read(name, target.definition, given)
    if agent_part is None:
        _require_confirmation(target, operation.destructive(target.definition), given, doubt)
    text = json_text.dumps(arguments, indent=None)
    stored = redacted_arguments(text, method, target)
    seconds = hold.seconds if hold is not None else target.connect_seconds + WAIT_SECONDS
    deadline = timezone.now() + timedelta(seconds=seconds)
    as_task = given.as_task and method == TOOLS_CALL
    return intent_of(
        actor,
        method,
        target,
        stored,
        deadline,
        repeats,
        doubt,
        as_task=as_task,
        agent_part=agent_part,
        hold=hold,
        origin=origin,
    )


def _require_confirmation(target: Target, destructive: bool, given: SubmittedArguments, doubt: ArgumentProblem) -> None:
    named = isinstance(given.confirm, str) and is_typed(given.confirm, target.name)  # a socket sends any JSON
    if destructive and not named:
        raise Rejected("This tool is marked destructive. Type its name to confirm, then run it again.", confirm="name")
    if doubt and not given.unchecked and not given.anyway:
        message = (
            f"The arguments cannot be checked against the tool's schema ({doubt.reason}). Confirm to run it anyway."
        )
        raise Rejected(message, confirm="unchecked")


# --- afterwards ------------------------------------------------------------------------------------------------------
def cancel(actor: Actor, user: Any, call: Call) -> bool:
    """Cancel a call, or ask its worker to. False if it was over, or a person had already asked.

    A requested call ends at once. For a sent call the request is stored in the row and the worker is woken. Whether the
    tool stopped is unknown: MCP has no answer to a cancellation. Raises access.Denied and AuditUnavailable.
    """
    permissions.require(user, actor, "call_tool", call.server, subject=call.target)
    done = writer().submit_and_wait(partial(_cancel, actor, call.uid), partial(_cancel_events, actor), DURABLE_SECONDS)
    return done is not None


def _cancel(actor: Actor, uid: UUID) -> Call | None:
    """The changed row, or None if nothing was left to cancel."""
    ended = end_now([uid], CANCELLED_BEFORE)
    if not ended and not request_cancel([uid], actor.name):
        return None
    call = ended[0] if ended else Call.objects.select_related("server").get(uid=uid)
    after_commit(_cancelled, call)
    return call


def _cancel_events(actor: Actor, call: Call | None) -> list[Event]:
    if call is None:
        return []
    asked = event_of(call, AuditAction.CALL_CANCEL, AuditOutcome.OK, actor)
    return [asked, finish_event(call, CANCELLED_BEFORE, actor)] if call.state == CallState.CANCELLED else [asked]


def _cancelled(call: Call) -> None:
    notify(call)
    if call.worker_uid is not None:
        hints.wake_worker(call.worker_uid, "cancel", call.uid)

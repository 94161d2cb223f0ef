"""Placing, cancelling and repeating calls: the one place in which every door ends (socket, form, repeat).

A call is accepted when its intent (row, arguments, audit event) is committed; before that no byte may leave, and after
that the worker is rung. Whatever happens to the ring, the tick of the session's owner finds the row.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.db.models import F
from django.utils import timezone

from servers.audit import payloads
from servers.audit.record import Actor, Event
from servers.audit.writer import AuditUnavailable, WriterBusy, writer
from servers.enums import AuditAction, AuditOutcome
from servers.models import Server
from sessions import bus
from sessions.domain.arguments import Given, Rejected, read_arguments
from sessions.domain.endings import CANCELLED_BEFORE, end_now, expire_due, finish_event, server_ref
from sessions.domain.intents import Intent, give_up, submit
from sessions.domain.targets import Target, find_target
from sessions.enums import CallState
from sessions.models import Call

__all__ = ["AuditUnavailable", "Given", "Rejected", "aplace", "cancel", "check", "expire_due", "place", "repeat"]

DURABLE_SECONDS = 2.0
#: how long a call may wait for its session before it lapses, on top of the server's own connect time-out
WAIT_SECONDS = 30
CALL_RIGHT, PAYLOAD_RIGHT = "servers.call_tool", "servers.view_payload"
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


# --- placing ---------------------------------------------------------------------------------------------------------
def place(actor: Actor, user: Any, server: Server, tool: str, given: Given, *, repeats: Call | None = None) -> Call:
    """Place a call and return its committed row.

    Raises PermissionDenied (recorded), Rejected (server, tool, arguments or confirmation) and AuditUnavailable (the
    intent was not durable within 2 s: the call is refused).
    """
    intent = check(actor, user, server.uid, tool, given, repeats=repeats)
    with _faults_in_words():
        future = submit(intent)
        try:
            return future.result(DURABLE_SECONDS)
        except FutureTimeout:
            return give_up(intent, future)


async def aplace(actor: Actor, user: Any, server_uid: UUID, tool: str, given: Given, *, run: Run) -> Call:
    """`place` for a loop: `run` carries the checks (database, JSON Schema) to a thread of the caller's choice."""
    intent: Intent = await run(partial(check, actor, user, server_uid, tool, given))
    with _faults_in_words():
        future = submit(intent)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), DURABLE_SECONDS)
        except TimeoutError:
            return give_up(intent, future)


@contextmanager
def _faults_in_words() -> Iterator[None]:
    try:
        yield
    except WriterBusy as problem:
        raise AuditUnavailable("Too many calls wait for the audit log, so this one was not made. Try again.") from problem
    except IntegrityError as problem:
        raise Rejected("The server was deleted meanwhile.") from problem


def check(
    actor: Actor, user: Any, server_uid: UUID, tool: str, given: Given, *, repeats: Call | None = None
) -> Intent:
    """Everything that may refuse a call, in a thread that may wait for the database and the schema checker."""
    _require(actor, user, CALL_RIGHT, tool)
    target = find_target(server_uid, tool)
    arguments, unchecked = read_arguments(target.schema, given)
    _require_confirmation(target, given, unchecked)
    return Intent(
        actor=actor,
        target=target,
        arguments=json.dumps(arguments, ensure_ascii=False, separators=(",", ":")),
        deadline=timezone.now() + timedelta(seconds=target.server.connect_timeout_seconds + WAIT_SECONDS),
        repeats=repeats,
        details={"unchecked": unchecked} if unchecked else {},
    )


def _require(actor: Actor, user: Any, right: str, subject: str) -> None:
    if user.has_perm(right):
        return
    denied = Event(
        action=AuditAction.PERMISSION_DENY,
        outcome=AuditOutcome.DENIED,
        actor=actor,
        server=None,
        subject=subject[:300],
        details={"right": right},
    )
    writer().submit(lambda: None, lambda _: [denied])
    raise PermissionDenied("You may not call tools. Ask an administrator for the right.")


def _require_confirmation(target: Target, given: Given, unchecked: str) -> None:
    if target.destructive and given.confirm != target.definition.key:
        raise Rejected("This tool is marked destructive. Type its name to confirm, then run it again.", confirm="name")
    if unchecked and not given.confirm:
        message = f"The arguments cannot be checked against the tool's schema ({unchecked}). Confirm to run it anyway."
        raise Rejected(message, confirm="unchecked")


# --- afterwards ------------------------------------------------------------------------------------------------------
def cancel(actor: Actor, user: Any, call: Call) -> bool:
    """Cancel a call, or ask its worker to. False when it was over, or somebody had asked before.

    A requested call ends at once; for one that was sent the wish stands in the row and the worker is rung. Whether the
    tool stopped is the server's affair: MCP has no answer to a cancellation.
    """
    with _faults_in_words():
        try:
            return submit_cancel(actor, user, call).result(DURABLE_SECONDS) is not None
        except FutureTimeout as problem:
            raise AuditUnavailable("The audit log could not be written within 2 seconds. Try again.") from problem


def submit_cancel(actor: Actor, user: Any, call: Call) -> "Future[Call | None]":
    """The future holds the changed row (with `server`), or None where nothing was left to cancel."""
    _require(actor, user, CALL_RIGHT, call.target)
    future: Future[Call | None] = writer().submit(partial(_cancel, actor, call.uid), partial(_cancel_events, actor))
    future.add_done_callback(_cancelled)
    return future


def _cancel(actor: Actor, uid: UUID) -> Call | None:
    ended = end_now([uid], CANCELLED_BEFORE)
    if ended:
        return ended[0]
    running = Call.objects.filter(uid=uid, state=CallState.SENT, cancel_requested_at=None)
    wish = {"cancel_requested_at": timezone.now(), "cancel_requested_by": actor.name, "version": F("version") + 1}
    return Call.objects.select_related("server").get(uid=uid) if running.update(**wish) else None


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
    )
    return [asked, finish_event(call, CANCELLED_BEFORE, actor)] if call.state == CallState.CANCELLED else [asked]


def _cancelled(future: "Future[Call | None]") -> None:
    if future.cancelled() or future.exception() is not None:
        return
    call = future.result()
    if call is None:
        return
    bus.call_changed(call.uid, call.version, call.server.uid if call.server else None)
    if call.worker_uid is not None:
        bus.ring_later(call.worker_uid, "cancel", call.uid, call.epoch)


def repeat(actor: Actor, user: Any, call: Call, *, confirm: str | bool = "") -> Call:
    """A new call with the arguments of `call`, linked to it. The old one stays as it is."""
    if not may_read(user, call):
        raise PermissionDenied("Repeating a call uses its arguments, which you may not read.")
    if call.server is None:
        raise Rejected(f"{call.server_name} was deleted; its calls cannot be run again.")
    text = payloads.read(call.arguments)
    if text is None:
        raise Rejected("The arguments of this call were erased; fill in the form again.")
    return place(actor, user, call.server, call.target, Given(text=text, confirm=confirm), repeats=call)


def may_read(user: Any, call: Call) -> bool:
    """Arguments and results: whoever made the call, and whoever holds the right."""
    return call.user_id == user.pk or user.has_perm(PAYLOAD_RIGHT)

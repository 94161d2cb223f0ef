"""Repeat a call with the arguments of an earlier one: when to ask first, and how one click makes one call."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils import timezone

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from servers.definitions.listing import compatibility_of
from servers.definitions.versions import body_of
from servers.models import Definition, Server
from sessions.calls.operations import OPERATIONS
from sessions.calls.payload_readings import record_reading
from sessions.calls.placing import Origin, Rejected, SubmittedArguments, place
from sessions.calls.visibility import may_read
from sessions.enums import CallState
from sessions.models import Call

#: a second click within this time is the same click
TWICE_SECONDS = 2
RUNNING = [state for state in CallState if not state.final]


@dataclass(frozen=True)
class ConfirmationReasons:
    """Why a person is asked before the call is made. `breaking`: how the definition changed since the first call.
    `doubt`: why these arguments were doubtful the first time."""

    name: bool = False
    doubt: str = ""
    unknown: bool = False
    breaking: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.name or self.unknown or bool(self.doubt) or bool(self.breaking)


def confirmation_reasons(call: Call) -> ConfirmationReasons:
    """At most two queries."""
    found = _definition(call.method, call.target, identity=call.identity_id)
    return reasons_of(found, call.method, call.definition_digest, call.doubt, unknown=call.effect_unknown)


def reasons_of(
    definition: Definition | None, method: str, digest: str, doubt: str, *, unknown: bool
) -> ConfirmationReasons:
    """`digest` identifies the definition that the arguments were made for."""
    operation = OPERATIONS.get(method)
    if operation is None or definition is None:
        return ConfirmationReasons(unknown=unknown, doubt=doubt)
    return ConfirmationReasons(
        name=operation.destructive(body_of(definition)),
        unknown=unknown,
        doubt=doubt,
        breaking=breaking_since(definition, digest),
    )


def _definition(method: str, target: str, **whose: Any) -> Definition | None:
    operation = OPERATIONS.get(method)
    if operation is None:
        return None
    kind, key = operation.place(target)
    return Definition.objects.filter(kind=kind, key=key, removed_at=None, **whose).first()


def definition_for(server: Server, method: str, target: str) -> Definition | None:
    """The definition as offered to the identity that `server` was read for."""
    return _definition(method, target, server=server, **server.identity_filter)


def breaking_since(definition: Definition, digest: str) -> list[str]:
    """How the definition is incompatible with its version `digest`. If that version is no longer stored, only checking
    the arguments can tell."""
    if not digest or digest == definition.digest:
        return []
    before = definition.versions.filter(digest=digest).exclude(body="").values_list("body", flat=True).first()
    if before is None:
        return []
    found = compatibility_of(before, definition.body)
    return found.reasons if found.change == "breaking" else []


def repeat(actor: Actor, user: Any, call: Call, *, confirm: str | bool = "", anyway: bool = False) -> Call:
    """A new call with the arguments of `call`, linked to it. The old one does not change. Raises what `place` does, and
    AlreadyPlaced for the second of two clicks, or while the call of the first one is running."""
    if not may_read(user, call):
        raise access.Denied("view_payload", call.server)
    if call.server is None:
        raise Rejected(f"{call.server_name} was deleted; its calls cannot be run again.")
    text = payloads.read(call.arguments)
    if text is None:
        raise Rejected("The arguments of this call were erased. Fill in the form again.")
    if call.arguments.redacted:
        raise Rejected("Some arguments of this call were masked when it was stored. Fill in the form again.")
    record_reading(actor, call, call.arguments)  # the arguments of the new call are the person's own
    given = SubmittedArguments(text=text, confirm=confirm, as_task=call.as_task, anyway=anyway)
    origin = Origin(twin=lambda: _twin(call, user))
    return place(actor, user, call.server, call.target, given, method=call.method, repeats=call, origin=origin)


def _twin(call: Call, user: Any) -> Call | None:
    # The lock serializes clicks that arrive at two processes; SQLite has only one writer anyway.
    Call.objects.select_for_update(of=("self",)).filter(pk=call.pk).values_list("pk", flat=True).first()
    return twin_among(Call.objects.filter(repeats=call), user)


def twin_among(calls: Any, user: Any) -> Call | None:
    """This person's newest of `calls`, if it is still running or was requested a moment ago."""
    newest: Call | None = calls.filter(user_id=user.pk).order_by("-pk").first()
    if newest is None:
        return None
    # abs: a call far in the future does not count, as the clock was set back
    recent = abs(timezone.now() - newest.created_at) <= timedelta(seconds=TWICE_SECONDS)
    return newest if recent or newest.state in RUNNING else None

"""Runs a saved call as a new call, after the same checks as *Run again*."""

from functools import partial
from typing import Any

from servers import access
from servers.audit import payloads
from servers.audit.record import Actor
from sessions.calls.arguments import Rejected
from sessions.calls.placing import Origin, SubmittedArguments, place
from sessions.calls.repeating import ConfirmationReasons, definition_for, reasons_of, twin_among
from sessions.models import Call, SavedCall


def confirmation_reasons(user: Any, saved: SavedCall) -> ConfirmationReasons:
    """`unknown` depends on this person's newest call made from it."""
    newest = _calls(saved).filter(user_id=user.pk).order_by("-pk").first()
    unknown = newest is not None and newest.effect_unknown
    definition = definition_for(access.with_identity_of(user, saved.server), saved.method, saved.target)
    return reasons_of(definition, saved.method, saved.definition_digest, saved.doubt, unknown=unknown)


def run(actor: Actor, user: Any, saved: SavedCall, *, confirm: str = "", anyway: bool = False) -> Call:
    """Raises the exceptions of `place`, and AlreadyPlaced."""
    text = payloads.read(saved.arguments)
    if text is None:
        raise Rejected("The arguments of this saved call were erased. Delete it, or save it again.")
    if saved.arguments.redacted:
        raise Rejected("Some arguments of this saved call are masked. Use Edit and run, and enter them again.")
    given = SubmittedArguments(text=text, confirm=confirm, as_task=saved.as_task, anyway=anyway)
    origin = Origin(twin=partial(_twin, saved, user), saved=saved.uid)
    return place(actor, user, saved.server, saved.target, given, method=saved.method, origin=origin)


def _calls(saved: SavedCall) -> Any:
    return Call.objects.filter(saved=saved.uid)


def _twin(saved: SavedCall, user: Any) -> Call | None:
    SavedCall.objects.select_for_update().filter(pk=saved.pk).values_list("pk", flat=True).first()
    return twin_among(_calls(saved), user)

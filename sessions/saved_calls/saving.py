"""Saves, changes and deletes named calls. The arguments are a payload, masked and encrypted like those of calls."""

from typing import Any

from django.db import IntegrityError
from django.http import Http404

from servers import access, permissions
from servers.audit import payload_privacy, payloads
from servers.audit.acts import audited
from servers.audit.record import Actor, ServerRef
from servers.definitions.versions import body_of
from servers.enums import AuditAction, PayloadKind, RedactedPart
from servers.json import text as json_text
from servers.models import Definition, Payload, Server
from servers.privacy import redaction
from servers.schemas import secrets
from servers.schemas.input_schema import input_schema_of
from sessions.calls import visibility
from sessions.calls.arguments import Rejected, SubmittedArguments
from sessions.calls.operations import OPERATIONS, operation_of
from sessions.calls.payload_readings import record_reading
from sessions.mcp.core.methods import COMPLETE, TOOLS_CALL
from sessions.models import Call, SavedCall
from sessions.overview import server_page
from sessions.saved_calls.reading import NOT_FOUND, may_change, may_share

#: maximum number of saved calls of one server
MOST = 500
NAME_CHARS = 80
METHODS = frozenset(OPERATIONS) - {COMPLETE}


class Unsaved(Exception):
    """The message is for the page."""


def save_form(
    actor: Actor,
    user: Any,
    server: Server,
    method: str,
    target: str,
    given: SubmittedArguments,
    name: str,
    *,
    shared: bool,
) -> SavedCall:
    """Save the arguments of a form, even if the tool's schema forbids them. Raises Unsaved and access.Denied."""
    permissions.require(user, actor, "call_tool", server, subject=target)
    if method not in METHODS:
        raise Unsaved("Calls of this method cannot be saved.")
    operation = operation_of(method)
    kind, key = operation.place(target)
    definition = server_page.definitions(server, kind).filter(key=key).first()
    if definition is None and operation.missing:
        raise Unsaved(f"{server.name} {operation.missing}")
    described = body_of(definition) if definition is not None else {}
    try:
        arguments, doubt = operation.read(target, described, given)
    except Rejected as problem:
        raise Unsaved(f"Not saved. {problem.message}") from problem
    row = SavedCall(
        server=server,
        method=method,
        target=target,
        as_task=given.as_task and method == TOOLS_CALL,
        definition_digest=definition.digest if definition is not None else "",
        doubt=doubt.kind,
    )
    text = json_text.dumps(arguments, indent=None)
    masked, count = redaction.redacted(text, _subject(row, definition, described), payload_privacy.current())
    return _write(actor, user, row, name, masked, count, shared=shared)


def _subject(row: SavedCall, definition: Definition | None, described: dict[str, Any]) -> redaction.Subject:
    secret = definition is not None and row.method == TOOLS_CALL and secrets.may_hold_secret(definition.body)
    schema = input_schema_of(described) if secret else None
    return redaction.Subject(RedactedPart.ARGUMENTS, row.server_id, row.target, schema)


def save_call(actor: Actor, user: Any, call: Call, name: str, *, shared: bool) -> SavedCall:
    """Save the arguments of a call as stored: masked values stay masked. Raises Unsaved and access.Denied."""
    server = call.server
    if not visibility.may_read(user, call):
        raise access.Denied("view_payload", server)
    permissions.require(user, actor, "call_tool", server, subject=call.target)
    if server is None or call.method not in METHODS:
        raise Unsaved("This call cannot be saved.")
    text = payloads.read(call.arguments)
    if text is None:
        raise Unsaved("The arguments of this call were erased, so there is nothing to save.")
    row = SavedCall(
        server=server,
        method=call.method,
        target=call.target,
        as_task=call.as_task,
        definition_digest=call.definition_digest,
        source=call.arguments.digest,
        doubt=call.doubt,
    )
    return _write(actor, user, row, name, text, call.arguments.redacted, shared=shared, call=call)


def _write(
    actor: Actor,
    user: Any,
    row: SavedCall,
    name: str,
    text: str,
    masked: int,
    *,
    shared: bool,
    call: Call | None = None,
) -> SavedCall:
    """`call`: the call that the arguments come from. They now belong to the person, so reading them is not recorded."""
    row.name, row.shared, row.owner_id = _name(name), shared, user.pk
    if SavedCall.objects.filter(server_id=row.server_id).count() >= MOST:
        raise Unsaved(f"{row.server.name} has {MOST} saved calls, which is the limit. Delete one first.")
    try:
        with audited(actor) as trail:
            row.arguments = payloads.store(PayloadKind.SAVED, text, redacted=masked)
            row.save()
            if call is not None:
                record_reading(actor, call, call.arguments)
            details = {"name": row.name, "method": row.method, "shared": shared}
            trail.note(AuditAction.SAVED_CALL_CREATE, ServerRef.of(row.server), row.target[:300], details)
    except IntegrityError as problem:
        raise _refused(row, problem) from problem
    return row


def change(actor: Actor, user: Any, saved: SavedCall, name: str, *, shared: bool) -> bool:
    """False if nothing changed. Raises Unsaved and access.Denied."""
    _require_change(actor, user, saved)
    name, seen = _name(name), {"name": saved.name, "shared": saved.shared}
    wanted = {"name": name, "shared": shared}
    changes = {field: value for field, value in wanted.items() if value != seen[field]}
    if not changes:
        return False
    if shared != saved.shared and not may_share(user, saved):
        raise Unsaved("Only its owner can change who it is shared with.")
    saved.name, saved.shared = name, shared
    try:
        with audited(actor) as trail:
            rows = SavedCall.objects.filter(pk=saved.pk)
            old = rows.select_for_update(no_key=True).values("name", "shared").first()
            if old is None:
                raise Http404(NOT_FOUND)
            rows.update(**changes)
            details = {"before": old, "after": old | changes, "method": saved.method}
            trail.note(AuditAction.SAVED_CALL_CHANGE, ServerRef.of(saved.server), saved.target[:300], details)
    except IntegrityError as problem:
        raise _refused(saved, problem) from problem
    return True


def delete(actor: Actor, user: Any, saved: SavedCall) -> None:
    """Delete it and its arguments. Raises access.Denied."""
    _require_change(actor, user, saved)
    with audited(actor) as trail:
        if saved.delete()[0]:
            details = {"name": saved.name, "method": saved.method}
            trail.note(AuditAction.SAVED_CALL_DELETE, ServerRef.of(saved.server), saved.target[:300], details)


def erased(payload_ids: list[int]) -> None:
    """Erase the saved calls that were saved from these arguments, or whose calls have these arguments. Runs in the
    transaction of the erasure that a person requested."""
    digests = Payload.objects.filter(pk__in=payload_ids).values("digest")
    placed = Call.objects.filter(arguments__in=payload_ids, saved__isnull=False).order_by().values("saved")
    for rows in (SavedCall.objects.filter(source__in=digests), SavedCall.objects.filter(uid__in=placed)):
        payloads.erase_all(rows.values_list("arguments", flat=True), everywhere=False)


def _require_change(actor: Actor, user: Any, saved: SavedCall) -> None:
    permissions.require(user, actor, "call_tool", saved.server, subject=saved.target)
    if not may_change(user, saved):
        if not saved.shared:
            raise Http404(NOT_FOUND)
        permissions.require(user, actor, "change", saved.server, subject=saved.target)


def _name(text: str) -> str:
    name = " ".join(text.split())
    if not name or len(name) > NAME_CHARS or "\x00" in name:
        raise Unsaved(f"Enter a name of at most {NAME_CHARS} characters.")
    return name


def _refused(row: SavedCall, problem: IntegrityError) -> Unsaved:
    """An error message if another person caused the problem in the meantime; raises `problem` otherwise."""
    if not Server.objects.filter(pk=row.server_id).exists():
        return Unsaved("The server has been deleted.")
    if SavedCall.objects.filter(server_id=row.server_id, name=row.name).exclude(pk=row.pk).exists():
        return Unsaved(f"Another saved call of this server is named “{row.name}”. Choose another name.")
    raise problem

"""The verbs of a registered server. Each checks the permission, acts and is audited in one transaction; notifies
on commit.

Conflict       another user saved the server since the form was shown; nothing was changed
access.Denied  the permission is missing; the refusal is in the audit log
ValidationError, crypto.SealError
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify

from servers import permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.configuration import Registration, ValueInput
from servers.credentials.binding import blank_moved
from servers.credentials.variables import with_declared
from servers.credentials.vault import attach_in_transaction, choosable, require_chosen
from servers.enums import AuditAction, EraChoice, IdentityKind
from servers.models import Bundle, Credential, Identity, Server
from servers.packages import pins
from servers.packages.pins import Pin
from servers.registration.checking import check
from servers.registration.command_permissions import require_stdio_permission
from servers.registration.differences import FieldDifference, changes, columns_of, differences, shown
from servers.registration.needed_credentials import as_values, used_by
from servers.registration.reference_permissions import answers, require_changed_references, require_references
from servers.registration.values import merged, require_reentered, write_values
from servers.signals import server_changed, server_deleting
from servers.validators import RESERVED_SLUGS

__all__ = [
    "Conflict",
    "Registration",
    "ValueInput",
    "archive",
    "change",
    "choose_era",
    "clone",
    "delete",
    "disable",
    "enable",
    "register",
    "restore",
]

_SLUG_LENGTH, _NAME_LENGTH = 64, 120
# What a live session was opened with. Other fields change without disturbing it or its calls; it is notified of roots.
_OF_THE_CONNECTION = {
    *("transport", "era", "url", "command", "arguments", "working_directory", "connection_policy", "limits"),
    *("readable_paths", "writable_paths", "network_access", "network_hosts"),
    *("worker_label", "signs_in_as", "answers_sampling", "answers_elicitation"),
    *("idle_timeout_seconds", "connect_timeout_seconds", "request_timeout_seconds", "total_timeout_seconds"),
}
_SLUG_TAKEN = "This short name is already in use. Choose another one."


class Conflict(Exception):
    """`current` is what is stored now, `differences` where it differs from what was about to be saved."""

    def __init__(self, current: Server, differences: list[FieldDifference]) -> None:
        super().__init__(f"{current.name} was changed by someone else.")
        self.current = current
        self.differences = differences


def register(
    actor: Actor,
    user: Any,
    data: Registration,
    *,
    enabled: bool = True,
    chosen: Sequence[Credential] = (),
    package: Pin | None = None,
) -> Server:
    """A new server with its one shared identity, which uses the `chosen` credentials. `package`: a pin that comes with
    it."""
    permissions.require(user, actor, "add_server", subject=data.name)
    require_stdio_permission(user, actor, data.transport, data.name)
    data = with_declared(data, chosen)
    check(data)
    require_references(user, actor, data)
    require_chosen(actor, user, data, chosen)
    return _create(actor, user, data, AuditAction.SERVER_REGISTER, enabled=enabled, chosen=chosen, package=package)


def change(
    actor: Actor, user: Any, server: Server, data: Registration, expected_version: int, package: Pin | None = None
) -> Server:
    """`expected_version` is the version that the form showed. Raises Conflict if it is no longer the stored one.
    `package`: a pin that comes with it, if none applies yet."""
    permissions.require(user, actor, "change_server", server)
    require_stdio_permission(user, actor, data.transport, server.name, server)
    check(data)
    stored = Server.objects.get(pk=server.pk)
    if stored.version == expected_version:  # after a conflict, it is checked once the differences have been seen
        require_reentered(stored, data)
        require_changed_references(user, actor, stored, data)
    with _slug_in_words(), audited(actor) as trail:
        current = Server.objects.select_for_update(no_key=True).get(pk=server.pk)
        if current.version != expected_version:
            raise Conflict(current, differences(current, data))
        require_reentered(current, data)
        answered = answers(user, current, data)
        if answered:
            current.references_by_id = user.pk
            current.reference_grants.all().delete()
        _apply(trail, current, data, answered=answered)
        if package is not None:
            pins.carry_over_pin(trail, current, package, user)
    return current


def choose_era(actor: Actor, user: Any, server: Server, era: EraChoice) -> Server:
    """Set the era and reconnect; does nothing if that era is already set."""
    permissions.require(user, actor, "change_server", server)
    require_stdio_permission(user, actor, server.transport, server.name, server)
    with audited(actor) as trail:
        current = Server.objects.select_for_update(no_key=True).get(pk=server.pk)
        before = str(current.era)
        if before != era:
            current.era, current.version = era, current.version + 1
            current.save(update_fields=["era", "version", "updated_at"])
            details = {"changes": {"era": {"before": before, "after": str(era)}}}
            trail.note(AuditAction.SERVER_CHANGE, ServerRef.of(current), current.name, details)
            _notify(current, AuditAction.SERVER_CHANGE, reconnect=True)
    return current


def clone(actor: Actor, user: Any, server: Server, name: str = "") -> Server:
    """A disabled copy with its own sealed copies of the secret rows, which is why permission to change is needed too.

    Credentials of the vault are used by the copy as well, where the user may give them to a server; a grant is not: it
    belongs to the identity that signed in. What is left out is *needed* (see needed_credentials.left_out).
    """
    permissions.require(user, actor, "add_server", server)
    permissions.require(user, actor, "change_server", server)
    require_stdio_permission(user, actor, server.transport, server.name, server)
    kept = Registration.of_server(server)
    name = name.strip() or f"{server.name[: _NAME_LENGTH - 7]} (copy)"
    used, given = used_by(server), set(choosable(user))
    chosen = [credential for credential in used if credential in given]
    values = merged(server, kept)
    missing = as_values((credential for credential in used if credential not in given), values)
    data = replace(kept, name=name, slug="", values=[*values, *missing])
    check(data)
    require_references(user, actor, data)
    require_chosen(actor, user, data, chosen)
    pin = pins.of_server(server)
    action = AuditAction.SERVER_CLONE
    return _create(actor, user, data, action, enabled=False, chosen=chosen, package=pin, copied_from=server.name)


def enable(actor: Actor, user: Any, server: Server) -> Server:
    """An archived server is restored first: ValidationError."""
    permissions.require(user, actor, "change_server", server)
    require_stdio_permission(user, actor, server.transport, server.name, server)
    return _switch(actor, server, AuditAction.SERVER_ENABLE, _enabling)


def disable(actor: Actor, user: Any, server: Server) -> Server:
    permissions.require(user, actor, "change_server", server)
    return _switch(actor, server, AuditAction.SERVER_DISABLE, _disabling)


def archive(actor: Actor, user: Any, server: Server) -> Server:
    """Disable it and remove it from the list; everything is kept."""
    permissions.require(user, actor, "change_server", server)
    return _switch(actor, server, AuditAction.SERVER_ARCHIVE, _archiving)


def restore(actor: Actor, user: Any, server: Server) -> Server:
    """Back in the list, still disabled."""
    permissions.require(user, actor, "change_server", server)
    return _switch(actor, server, AuditAction.SERVER_RESTORE, lambda current: {"archived_at": None})


def delete(actor: Actor, user: Any, server: Server) -> None:
    """A server with a long history is disabled first, and stays disabled if its history could not be detached."""
    permissions.require(user, actor, "delete_server", server)
    if before := [work for _, work in server_deleting.send(Server, server=server) if work is not None]:
        _switch(actor, server, AuditAction.SERVER_DISABLE, _disabling)
        for work in before:
            cast("Callable[[], None]", work)()
    with audited(actor) as trail:
        # A host that adds a row between collecting and deleting would break the foreign key: its writes wait for this lock.
        current = Server.objects.select_for_update().filter(pk=server.pk).first()
        if current is None:
            return  # another user was faster; the audit log has their event
        gone = {
            name: shown(name, value) for name, value in columns_of(current).items() if value not in ("", [], {}, None)
        }
        trail.note(AuditAction.SERVER_DELETE, ServerRef.of(current), current.name, {"before": gone})
        _notify(current, AuditAction.SERVER_DELETE)
        Server.objects.filter(pk=server.pk).delete()


# --- steps -------------------------------------------------------------------------------------------------------------
def _create(
    actor: Actor,
    user: Any,
    data: Registration,
    action: AuditAction,
    *,
    enabled: bool,
    chosen: Sequence[Credential],
    package: Pin | None,
    **details: Any,
) -> Server:
    with _slug_in_words(), audited(actor) as trail:
        server = Server(**data.columns(), enabled=enabled, created_by_id=user.pk, references_by_id=user.pk)
        server.slug = data.slug or _free_slug(data.name)
        _checked(server).save(force_insert=True)
        values = write_values(server, data.used_values())
        Identity.objects.create(server=server, kind=IdentityKind.SHARED, declared_by_id=user.pk)
        entered = {name: value for name, value in columns_of(server).items() if value not in ("", [], {}, None)}
        details |= {"changes": changes({}, entered) | values}
        trail.note(action, ServerRef.of(server), server.name, details)
        _note_credentials(trail, server, values)
        for credential in chosen:
            attach_in_transaction(trail, server, credential)
        if package is not None:
            pins.carry_over_pin(trail, server, package, user)
        _notify(server, action)
    return server


def _apply(trail: Trail, current: Server, data: Registration, *, answered: bool) -> None:
    """`answered`: another person may be responsible for the references. A save that changes nothing is not an event,
    and causes no conflict for others who have the form open."""
    before = columns_of(current)
    after = data.columns() | {"slug": data.slug or current.slug}
    for name, value in after.items():
        setattr(current, name, value)
    _checked(current).save()
    values = write_values(current, data.used_values())
    changed = changes(before, after) | values
    if not (changed or answered):
        return
    current.version += 1
    current.save(update_fields=["version"])
    blank_moved(trail, current)
    trail.note(AuditAction.SERVER_CHANGE, ServerRef.of(current), current.name, {"changes": changed})
    _note_credentials(trail, current, values)
    if changed:
        _notify(current, AuditAction.SERVER_CHANGE, reconnect=bool(values or changed.keys() & _OF_THE_CONNECTION))


def _note_credentials(trail: Trail, server: Server, values: dict[str, dict[str, str]]) -> None:
    """A secret that was set, changed or removed is a separate event, so that a filter finds it."""
    for name, change_ in values.items():
        if change_["after"] in ("set", "changed"):
            trail.note(AuditAction.CREDENTIAL_SET, ServerRef.of(server), name, change_)
        elif change_["before"] == "set":
            trail.note(AuditAction.CREDENTIAL_REMOVE, ServerRef.of(server), name, {"after": "removed"})


def _switch(actor: Actor, server: Server, action: AuditAction, fields: Callable[[Server], dict[str, Any]]) -> Server:
    """Change the stored row as `fields` says; a row that needs no change gets no event."""
    with audited(actor) as trail:
        current = Server.objects.select_for_update(no_key=True).get(pk=server.pk)
        before = {"enabled": current.enabled, "archived_at": current.archived_at}
        after = {name: value for name, value in fields(current).items() if before[name] != value}
        if after:
            for name, value in after.items():
                setattr(current, name, value)
            current.save(update_fields=[*after, "updated_at"])
            details = {"changes": {name: {"before": before[name], "after": value} for name, value in after.items()}}
            trail.note(action, ServerRef.of(current), current.name, details)
            _notify(current, action)
    return current


def _enabling(current: Server) -> dict[str, Any]:
    if current.archived_at is not None:
        raise ValidationError(f"{current.name} is archived. Restore it first.", code="archived")
    return {"enabled": True}


def _disabling(current: Server) -> dict[str, Any]:
    return {"enabled": False}


def _archiving(current: Server) -> dict[str, Any]:
    return {"enabled": False, "archived_at": current.archived_at or timezone.now()}


def _notify(server: Server, action: AuditAction, *, reconnect: bool = False) -> None:
    send = partial(server_changed.send_robust, sender=Server, server_uid=server.uid, change=action, reconnect=reconnect)
    transaction.on_commit(send, robust=True)


def _checked(server: Server) -> Server:
    """Check what the columns require (lengths, choices, a free slug), with messages by field."""
    server.full_clean()
    if (bundle := Bundle.objects.filter(slug=server.slug).first()) is not None:
        words = f"The bundle {bundle.name} already uses this short name. Choose another one."
        raise ValidationError({"slug": ValidationError(words, code="unique")})
    return server


def _free_slug(name: str) -> str:
    base = slugify(name)[: _SLUG_LENGTH - 4].strip("-") or "server"
    taken = set(Server.objects.filter(slug__startswith=base).values_list("slug", flat=True)) | RESERVED_SLUGS
    taken |= set(Bundle.objects.filter(slug__startswith=base).values_list("slug", flat=True))
    number = 1
    while (slug := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return slug


class _slug_in_words:
    """Two admins who choose the same short name at once: the second gets an error."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, exc: BaseException | None, trace: Any) -> None:
        if isinstance(exc, IntegrityError) and "slug" in str(exc):
            raise ValidationError({"slug": ValidationError(_SLUG_TAKEN, code="unique")}) from exc

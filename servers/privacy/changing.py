"""Changes to the privacy settings and redaction rules, each with its audit event. They apply to what is stored from
then on: what is already stored can be erased."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from servers import keyring, permissions
from servers.audit import payload_privacy
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.crypto import SealError
from servers.enums import AuditAction, RedactedPart
from servers.models import PrivacySettings, RedactionRule, Server
from servers.privacy.redaction import PATH_CHARS, PathInvalid, compiled

PERMISSION = "administer"
#: every call is checked against each rule
MOST_RULES = 200
_KEY = 1
_SWITCHES = {
    "seal_payloads": "encrypt arguments and results",
    "mask_by_schema": "mask by schema",
    "mask_detected": "mask detected secrets",
}


def settings_now() -> PrivacySettings:
    return PrivacySettings.objects.filter(pk=_KEY).first() or PrivacySettings(pk=_KEY)


class Conflict(Exception):
    """Another administrator saved first: the page that was filled in is out of date."""

    def __init__(self) -> None:
        super().__init__("These settings changed after you opened this page. Check them and save again.")


def mark(row: PrivacySettings) -> str:
    """A value that changes whenever a switch does: a form that shows all switches sends it back."""
    return ",".join(f"{name}:{_word(getattr(row, name))}" for name in _SWITCHES)


def change_settings(actor: Actor, user: Any, switches: Mapping[str, bool], seen: str | None = None) -> bool:
    """Returns False if nothing changed. `seen` is the `mark` of the page that was filled in. Raises access.Denied,
    Conflict, and ValidationError if the key ring cannot encrypt."""
    permissions.require(user, actor, PERMISSION, subject="privacy settings")
    if switches.get("seal_payloads"):
        try:
            keyring.load()
        except SealError as problem:
            raise ValidationError({"seal_payloads": str(problem)}) from problem
    with audited(actor) as trail:
        row = PrivacySettings.objects.select_for_update().filter(pk=_KEY).first() or PrivacySettings(pk=_KEY)
        changes = {
            _SWITCHES[name]: {"before": _word(getattr(row, name)), "after": _word(on)}
            for name, on in switches.items()
            if getattr(row, name) != on
        }
        if not changes:
            return False
        if seen is not None and seen != mark(row):
            raise Conflict
        for name, on in switches.items():
            setattr(row, name, on)
        row.save()
        trail.note(AuditAction.PRIVACY_CHANGE, None, "privacy settings", {"changes": changes})
        transaction.on_commit(payload_privacy.forget, robust=True)
    return True


@dataclass(frozen=True)
class RuleValues:
    path: str
    part: RedactedPart = RedactedPart.ALL
    server: Server | None = None
    target: str = ""
    note: str = ""


def add_rule(actor: Actor, user: Any, values: RuleValues) -> RedactionRule:
    """Raises access.Denied, and ValidationError by field."""
    permissions.require(user, actor, PERMISSION, subject="redaction rule")
    _check(values)
    if RedactionRule.objects.count() >= MOST_RULES:
        raise ValidationError(f"At most {MOST_RULES} rules (a fixed limit). Delete one first.")
    with audited(actor) as trail:
        _require_server(values)
        row = RedactionRule.objects.create(**vars(values), created_by_name=actor.name[:150])
        _note(trail, row, "added")
    return row


def change_rule(actor: Actor, user: Any, row: RedactionRule, values: RuleValues) -> bool:
    """Returns False if it was deleted meanwhile. Raises the same exceptions as `add_rule`."""
    permissions.require(user, actor, PERMISSION, subject="redaction rule")
    _check(values)
    with audited(actor) as trail:
        _require_server(values)
        stored = RedactionRule.objects.select_for_update().filter(pk=row.pk).first()
        if stored is None:
            return False
        before = _described(stored)
        changed = [name for name, value in vars(values).items() if getattr(stored, name) != value]
        for name in changed:
            setattr(stored, name, getattr(values, name))
        if changed:
            stored.save(update_fields=changed)
            _note(trail, stored, "changed", before=before)
    return True


def switch_rule(actor: Actor, user: Any, row: RedactionRule, *, enabled: bool) -> None:
    permissions.require(user, actor, PERMISSION, subject="redaction rule")
    with audited(actor) as trail:
        if RedactionRule.objects.filter(pk=row.pk, enabled=not enabled).update(enabled=enabled):
            _note(trail, row, "enabled" if enabled else "disabled")


def delete_rule(actor: Actor, user: Any, row: RedactionRule) -> None:
    permissions.require(user, actor, PERMISSION, subject="redaction rule")
    with audited(actor) as trail:
        if RedactionRule.objects.filter(pk=row.pk).delete()[0]:
            _note(trail, row, "deleted")


def _check(values: RuleValues) -> None:
    if len(values.path) > PATH_CHARS:
        raise ValidationError({"path": f"At most {PATH_CHARS} characters (a fixed limit)."})
    try:
        compiled(values.path)
    except PathInvalid as problem:
        raise ValidationError({"path": str(problem)}) from problem


def _require_server(values: RuleValues) -> None:
    """Another person may have deleted it since the form was checked. Locks it until the end of the transaction."""
    if (
        values.server is not None
        and not Server.objects.select_for_update(no_key=True).filter(pk=values.server.pk).exists()
    ):
        raise ValidationError({"server": f"{values.server.name} has been deleted. Choose another server."})


def _note(trail: Trail, row: RedactionRule, word: str, **more: Any) -> None:
    server = None if row.server is None else ServerRef.of(row.server)
    details = {"rule": word, **_described(row), **more}
    trail.note(AuditAction.PRIVACY_CHANGE, server, row.path, details)
    transaction.on_commit(payload_privacy.forget, robust=True)


def _described(row: RedactionRule) -> dict[str, Any]:
    server = "" if row.server is None else row.server.name
    return {"path": row.path, "part": row.part, "server": server, "target": row.target, "note": row.note}


def _word(on: bool) -> str:
    return "on" if on else "off"

"""Changing one setting at a time: by the verbs of the pages that the settings belong to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.forms import BoundField
from django.http import Http404

from servers.agents.oauth import registration
from servers.audit.record import Actor
from servers.privacy import changing as privacy
from servers.privacy.forms import PrivacySettingsForm
from sessions.enums import StoredKind
from sessions.retention import limits as retention
from sessions.retention.forms import LimitsForm


@dataclass(frozen=True)
class Switch:
    """On or off. `key` names it in the address."""

    key: str
    on: bool


@dataclass(frozen=True)
class Kept:
    """Days and megabytes of a kind of rows."""

    kind: StoredKind
    days: BoundField
    megabytes: BoundField

    @property
    def key(self) -> str:
        return f"storage-{self.kind.value}"


Change = Switch | Kept


def change(actor: Actor, user: Any, key: str, data: Mapping[str, Any]) -> bool:
    """False if nothing changed. Raises access.Denied, ValidationError, and Http404 for an unknown key."""
    area, _, name = key.partition("-")
    on = data.get("on") == "yes"
    if key == "registration":
        before = registration.is_open()
        registration.switch(actor, user, is_open=on)
        return before != on
    if area == "privacy" and name in PrivacySettingsForm.base_fields:
        return privacy.change_settings(actor, user, **{name: on})
    if area == "storage" and name in retention.limits():
        return _keep(actor, user, StoredKind(name), data)
    raise Http404("This setting does not exist.")


def _keep(actor: Actor, user: Any, kind: StoredKind, data: Mapping[str, Any]) -> bool:
    """Checked together with the limits of the other kinds, which stay as they are."""
    known = {name: "" if value is None else value for name, value in LimitsForm().initial.items()}
    given = {name: data.get(name, "") for name in (f"{kind.value}_days", f"{kind.value}_mb")}
    form = LimitsForm(known | given)
    if not form.is_valid():
        raise ValidationError([str(error) for errors in form.errors.values() for error in errors])
    return retention.change(actor, user, {kind: form.wanted()[kind]})

"""Change one setting at a time, with the functions of the pages that the settings belong to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """On or off. `key` identifies it in the URL."""

    key: str
    on: bool


@dataclass(frozen=True)
class Kept:
    """Days and megabytes to keep of one kind of row. `problem`: why they conflict with those of another kind."""

    kind: StoredKind
    days: BoundField
    megabytes: BoundField
    problem: str = ""

    @property
    def key(self) -> str:
        return f"storage-{self.kind.value}"


Change = Switch | Kept


class Refused(Exception):
    """The days and megabytes of a kind, as entered, with their errors."""

    def __init__(self, kind: StoredKind, form: LimitsForm) -> None:
        super().__init__(kind)
        self.kind, self.form = kind, form
        self._own = [name for name in form.errors if name.startswith(f"{kind.value}_")]
        form.fields[self._own[0] if self._own else f"{kind.value}_days"].widget.attrs["autofocus"] = True

    def problem_of(self, kind: StoredKind) -> str:
        """The errors in the fields of other kinds, to be shown beside the kind that was changed."""
        if kind != self.kind or self._own:
            return ""
        return " ".join(str(error) for errors in self.form.errors.values() for error in errors)


def change(actor: Actor, user: Any, key: str, data: Mapping[str, Any]) -> bool:
    """False if nothing changed. Raises access.Denied, Refused, and Http404 for an unknown key."""
    area, _, name = key.partition("-")
    on = data.get("on") == "yes"
    if key == "registration":
        before = registration.is_open()
        registration.switch(actor, user, is_open=on)
        return before != on
    if key == "documents":
        before = registration.takes_documents()
        registration.switch_documents(actor, user, is_open=on)
        return before != on
    if area == "privacy" and name in PrivacySettingsForm.base_fields:
        return privacy.change_settings(actor, user, {name: on})
    if area == "storage" and name in retention.limits():
        return _keep(actor, user, StoredKind(name), data)
    raise Http404("This setting does not exist.")


def _keep(actor: Actor, user: Any, kind: StoredKind, data: Mapping[str, Any]) -> bool:
    """Validate the limits together with those of the other kinds, which do not change."""
    known = {name: "" if value is None else value for name, value in LimitsForm().initial.items()}
    given = {name: data.get(name, "") for name in (f"{kind.value}_days", f"{kind.value}_mb")}
    form = LimitsForm(known | given)
    if not form.is_valid():
        raise Refused(kind, form)
    return retention.change(actor, user, {kind: form.wanted()[kind]})

"""What differs between two states of a registration, as shown in the audit log and on the conflict page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model

from servers.configuration import COLUMNS, Registration
from servers.models import Server
from servers.registration.values import stored_values
from servers.validators import masked_url

_SHOWN_CHARACTERS = 500
_LABELS = {
    "owner_id": "Owner",
    "url": "URL",
    "slug": "Short name",
    "signs_in_as": "Identity",
    "readable_paths": "Files it may read",
    "writable_paths": "Files it may change",
    "network_access": "Network",
    "network_hosts": "Hosts",
    "answers_sampling": "Sampling",
    "answers_elicitation": "Elicitation",
    "recording": "Protocol recording",
}


@dataclass(frozen=True)
class FieldDifference:
    """`current`: what another user saved; `yours`: what was about to be saved. Both are safe to show on a page."""

    name: str
    field: str  # the label shown to people
    current: str
    yours: str


def columns_of(server: Server) -> dict[str, Any]:
    return {name: getattr(server, name) for name in COLUMNS}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The columns that differ: {"url": {"before": …, "after": …}}."""
    differing = [name for name in after if before.get(name) != after[name]]
    return {name: {"before": shown(name, before.get(name)), "after": shown(name, after[name])} for name in differing}


def shown(name: str, value: Any) -> Any:
    """The value for the audit log: URLs without their secrets, an owner by name, long text truncated."""
    if name == "url":
        return masked_url(str(value or ""))
    if name == "owner_id":
        return owner_name(value)
    if name == "roots":
        return [f"{root['uri']} ({root['name']})" if root.get("name") else root["uri"] for root in value or []]
    if isinstance(value, str) and len(value) > _SHOWN_CHARACTERS:
        return value[:_SHOWN_CHARACTERS] + "…"
    return value


def owner_name(owner_id: int | None) -> str:
    if owner_id is None:
        return ""
    user = get_user_model()._default_manager.filter(pk=owner_id).first()
    return user.get_username() if user else f"user {owner_id}"


def differences(stored: Server, given: Registration) -> list[FieldDifference]:
    after = given.columns() | {"slug": given.slug or stored.slug}
    found = [
        FieldDifference(name, _label(name), _words(change["before"]), _words(change["after"]))
        for name, change in changes(columns_of(stored), after).items()
    ]
    return found + _value_differences(stored, given)


def _label(name: str) -> str:
    return _LABELS.get(name) or name.replace("_seconds", "").replace("_", " ").capitalize()


def _words(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    if isinstance(value, dict):
        return "\n".join(f"{_label(name)}: {item}" for name, item in value.items())
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else str(value)


def _value_differences(stored: Server, given: Registration) -> list[FieldDifference]:
    rows, found = stored_values(stored), []
    entered = {value.key: value for value in given.used_values()}
    for key in rows.keys() | entered.keys():
        row, value = rows.get(key), entered.get(key)
        old = "—" if row is None else _stored(row)
        new = "—" if value is None else _entered(value)
        if old != new and not (value is not None and value.value is None and not value.needed and row is not None):
            name = row.name if row is not None else value.name if value is not None else key[1]
            found.append(FieldDifference(f"{key[0]} {key[1]}", name, old, new))
    return sorted(found, key=lambda difference: difference.name)


def _stored(row: Any) -> str:
    return ("(value needed)" if row.sealed is None else "(secret)") if row.secret else row.plain


def _entered(value: Any) -> str:
    if value.needed:
        return "(value needed)"
    return "(new secret)" if value.secret and value.value is not None else "(secret)" if value.secret else value.text()

"""One server of a configuration, as a registration; with what is wrong with it, left out of it, or needed for it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import ValidationError

from servers.domain.checking import check
from servers.domain.form_data import COLUMNS, Registration
from servers.domain.importing.connection import connection
from servers.domain.importing.document import Document
from servers.domain.importing.given_values import given_values
from servers.domain.importing.own import own_columns, own_credentials
from servers.domain.importing.reading import Need, Reading, short
from servers.domain.needed import Needed
from servers.enums import TransportKind
from servers.models import Server

_NO_LIMIT, _LONGEST_NAME = 2**31, 120
# Of other clients: who approves what is decided elsewhere here.
_UNUSED = ("alwaysAllow", "autoApprove", "$schema")


@dataclass(frozen=True)
class Entry:
    """`stated`: the columns that the file speaks of; the others keep what is stored when a server is overwritten."""

    name: str
    registration: Registration | None = None
    stated: frozenset[str] = frozenset()
    enabled: bool = True
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    credentials: tuple[Needed, ...] = ()

    def unmet(self, typed: Mapping[str, str]) -> list[Need]:
        """Needed values without which it cannot be registered."""
        return [need for need in self.needs if need.required and need.key not in typed]


def parse(document: Document, name: str, raw: Any, typed: Mapping[str, str] | None = None) -> Entry:
    """`typed`: the values that were entered, by the key of their need."""
    if len(name) > _LONGEST_NAME:
        return Entry(short(name), problems=(f"Its name has more than {_LONGEST_NAME} characters.",))
    if name in document.doubles:
        return Entry(name, problems=(f"“{short(name)}” stands twice in this file. Remove one.",))
    if not isinstance(raw, dict):
        return Entry(name, problems=("It is not an object with a command or a URL.",))
    if problem := _unreadable(name, raw):
        return Entry(name, problems=(problem,))
    reading = Reading(raw, document.inputs, typed or {})
    return _entry(name, reading)


def _entry(name: str, reading: Reading) -> Entry:
    columns = connection(reading) | _times(reading)
    own, secrets = own_columns(reading)
    columns |= own
    credentials = own_credentials(reading)
    stated = frozenset(columns)
    columns.setdefault("transport", _open_transport(columns.get("url", "")))
    enabled = _enabled(reading)
    columns = {"name": name.strip(), **columns}
    if description := reading.text("description"):
        columns.setdefault("description", description)
        stated |= {"description"}
    values = given_values(reading, columns["transport"], secrets) if not reading.problems else []
    reading.take(*_UNUSED)
    if left := reading.leftovers():
        reading.notes.append(f"Not imported: {', '.join(left)}.")
    registration = Registration(**columns, values=values) if not reading.problems else None
    notes, needs = _once(reading.notes), tuple(reading.needs.values())
    entry = Entry(name, registration, stated, enabled, notes=notes, needs=needs, credentials=credentials)
    problems = reading.problems or ([] if entry.unmet(reading.typed) else faults(entry.registration))
    return replace(entry, problems=_once(problems))


def faults(registration: Registration | None) -> list[str]:
    """What the rules of a registration say, in words."""
    if registration is None:
        return []
    try:
        check(registration)
        Server(**registration.columns()).clean_fields(exclude=[*(_other_columns()), "slug", "owner"])
    except ValidationError as problem:
        return words(problem)
    return []


def words(problem: ValidationError) -> list[str]:
    if not hasattr(problem, "error_dict"):
        return list(problem.messages)
    return [f"{_label(name)}{text}" for name, texts in problem.message_dict.items() for text in texts]


def _label(name: str) -> str:
    return "" if name in ("__all__", "values", "url") else f"{name.replace('_', ' ').capitalize()}: "


def _other_columns() -> set[str]:
    return {field.name for field in Server._meta.fields} - set(COLUMNS)


def _unreadable(name: str, raw: Mapping[str, Any]) -> str:
    """Characters that no database column holds: NUL, and halves of a surrogate pair."""
    try:
        whole = json.dumps([name, raw])
    except (TypeError, ValueError):
        return "It holds a value that is no text, number or list."  # TOML knows dates
    if "\\u0000" in whole:
        return "It holds a NUL character."
    try:
        json.dumps([name, raw], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "It holds characters that are no text."
    return ""


def _times(reading: Reading) -> dict[str, Any]:
    """Codex writes seconds. A bare `timeout` is milliseconds for some clients and seconds for others: left out."""
    columns = {}
    for column, keys in (
        ("connect_timeout_seconds", ("startupTimeoutSec",)),
        ("request_timeout_seconds", ("toolTimeoutSec",)),
    ):
        found = reading.take(*keys)
        if isinstance(found, int | float) and 0 < found < _NO_LIMIT:
            columns[column] = max(1, round(found))
    if columns.get("request_timeout_seconds", 0) > Registration.total_timeout_seconds:
        columns["total_timeout_seconds"] = columns["request_timeout_seconds"]
    return columns


def _enabled(reading: Reading) -> bool:
    disabled, enabled = reading.flag("disabled"), reading.flag("enabled")
    return not disabled and enabled is not False


def _open_transport(url: str) -> TransportKind:
    is_socket = url.lower().startswith(("ws://", "wss://"))
    return TransportKind.WEBSOCKET if is_socket else TransportKind.AUTO_HTTP


def _once(lines: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))

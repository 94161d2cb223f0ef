"""One server from a configuration, as a registration, with its problems, ignored parts and missing values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import ValidationError

from servers.configuration import COLUMNS, Registration
from servers.models import Server
from servers.packages.pins import Pin
from servers.registration.checking import check
from servers.registration.forms.suggestion import transport_of
from servers.registration.importing.connection import connection
from servers.registration.importing.document import ImportedDocument
from servers.registration.importing.entry_reader import EntryReader, Need, short
from servers.registration.importing.given_values import given_values
from servers.registration.importing.mcpadmin_member import own_columns, own_credentials, own_package
from servers.registration.importing.registry import About
from servers.registration.importing.text import Pairs
from servers.registration.needed_credentials import Needed

_NO_LIMIT, _LONGEST_NAME = 2**31, 120
# Settings of other clients: here, approvals are configured elsewhere.
_UNUSED = (
    *(
        "alwaysAllow",
        "autoApprove",
        "$schema",
        "name",
        "id",
        "label",
        "serverLabel",
        "source",
        "trust",
        "requireApproval",
    ),
    *("bundled", "icon", "gallery"),
)
# Objects that contain the connection in some clients: Zed's command, Continue's transport, Goose's config.
_NESTED = ("command", "transport", "config")


@dataclass(frozen=True)
class Entry:
    """`stated`: the columns that the file specifies; overwriting a server keeps the stored values of the others."""

    name: str
    registration: Registration | None = None
    stated: frozenset[str] = frozenset()
    enabled: bool = True
    alternative: bool = False
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    credentials: tuple[Needed, ...] = ()
    package: Pin | None = None

    def unmet(self, typed: Mapping[str, str]) -> list[Need]:
        """The missing values without which it cannot be registered."""
        return [need for need in self.needs if need.required and need.key not in typed]


def parse(document: ImportedDocument, name: str, raw: Any, typed: Mapping[str, str] | None = None) -> Entry:
    """`typed`: the entered values, by the key of their need."""
    if len(name) > _LONGEST_NAME:
        return Entry(
            short(name), problems=(f"The name has more than {_LONGEST_NAME} characters, which is a fixed limit.",)
        )
    if name in document.doubles:
        return Entry(name, problems=(f"“{short(name)}” is defined twice in this file. Remove one.",))
    if not isinstance(raw, dict):
        return Entry(name, problems=("This is not an object with a command or a URL.",))
    if problem := _unreadable(name, raw):
        return Entry(name, problems=(problem,))
    about = document.about.get(name, About())
    if about.problem:
        return Entry(name, problems=(about.problem,), notes=about.notes, alternative=about.alternative)
    reading = EntryReader(_flat(raw), document.inputs, typed or {})
    reading.notes += about.notes
    return replace(_entry(name, reading), alternative=about.alternative)


def _flat(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    flat = Pairs(raw)
    doubles = list(raw.doubles) if isinstance(raw, Pairs) else []
    for key in _NESTED:
        inner = flat.get(key)
        if isinstance(inner, dict):
            doubles += inner.doubles if isinstance(inner, Pairs) else ()
            del flat[key]
            path = {"command": inner["path"]} if "path" in inner and "command" not in inner else {}
            flat |= {name: value for name, value in inner.items() if name != "path"} | path
    flat.doubles = tuple(dict.fromkeys(doubles))
    return flat


def _entry(name: str, reading: EntryReader) -> Entry:
    columns = connection(reading) | _times(reading)
    own, secrets = own_columns(reading)
    columns |= own
    credentials = own_credentials(reading)
    stated = frozenset(columns)
    columns.setdefault("transport", transport_of(columns.get("url", "")))
    disabled, flag = reading.flag("disabled"), reading.flag("enabled", "isActive")
    enabled = not disabled and flag is not False
    columns = {"name": name, **columns}
    columns["name"] = " ".join(columns["name"].split())  # as a page shows it
    if description := reading.text("description"):
        columns.setdefault("description", description)
        stated |= {"description"}
    values = given_values(reading, columns["transport"], secrets) if not reading.problems else []
    reading.take(*_UNUSED)
    if left := reading.leftovers():
        reading.notes.append(f"Ignored: {', '.join(left)}.")
    package = own_package(reading, columns) if not reading.problems else None
    registration = Registration(**columns, values=values) if not reading.problems else None
    notes, needs = _once(reading.notes), tuple(reading.needs.values())
    entry = Entry(
        name, registration, stated, enabled, notes=notes, needs=needs, credentials=credentials, package=package
    )
    problems = reading.problems or ([] if entry.unmet(reading.typed) else faults(entry.registration))
    return replace(entry, problems=_once(problems))


def faults(registration: Registration | None) -> list[str]:
    """The messages of the registration rules that it violates."""
    if registration is None:
        return []
    try:
        check(registration)
        others = {field.name for field in Server._meta.fields} - set(COLUMNS)
        Server(**registration.columns()).clean_fields(exclude=[*others, "slug", "owner"])
    except ValidationError as problem:
        return words(problem)
    return []


def words(problem: ValidationError) -> list[str]:
    if not hasattr(problem, "error_dict"):
        return list(problem.messages)
    lines: list[str] = []
    for name, texts in problem.message_dict.items():
        label = "" if name in ("__all__", "values", "url") else f"{name.replace('_', ' ').capitalize()}: "
        lines += [f"{label}{text}" for text in texts]
    return lines


def _unreadable(name: str, raw: Mapping[str, Any]) -> str:
    """Reject characters that no database column can store: NUL, and halves of a surrogate pair."""
    try:
        whole = json.dumps([name, raw])
    except (TypeError, ValueError):
        return "It contains a value that is not text, a number or a list."  # TOML has dates
    if "\\u0000" in whole:
        return "It contains a NUL character."
    try:
        json.dumps([name, raw], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "It contains invalid Unicode."
    return ""


def _times(reading: EntryReader) -> dict[str, Any]:
    """Codex names its units. A bare `timeout` is in milliseconds for some clients and seconds for others: ignored."""
    columns = {}
    for column, key, unit in (
        ("connect_timeout_seconds", "startupTimeoutSec", 1),
        ("connect_timeout_seconds", "startupTimeoutMs", 1_000),
        ("request_timeout_seconds", "toolTimeoutSec", 1),
    ):
        found = reading.take(key)
        if isinstance(found, int | float) and 0 < found < _NO_LIMIT:
            columns[column] = max(1, round(found / unit))
    if columns.get("request_timeout_seconds", 0) > Registration.total_timeout_seconds:
        columns["total_timeout_seconds"] = columns["request_timeout_seconds"]
    return columns


def _once(lines: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))

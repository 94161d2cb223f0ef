"""The `mcpadmin` member of an entry, as written by `exporting`: server settings that other clients do not have."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from django.contrib.auth import get_user_model
from packaging.version import InvalidVersion, Version

from servers.enums import (
    ConnectionPolicy,
    CredentialKind,
    Ecosystem,
    Environment,
    EraChoice,
    NetworkAccess,
    Recording,
    SignsInAs,
    TransportKind,
)
from servers.packages.commands import readable
from servers.packages.pins import Pin
from servers.registration.importing.entry_reader import EntryReader, short
from servers.registration.needed_credentials import Needed
from servers.validators import TIMES

KEY = "mcpadmin"
SECRETS, OWNER, CREDENTIALS, PACKAGE = "secrets", "owner", "credentials", "package"
_INTEGRITY = re.compile(r"sha(?:1|256|384|512)[-:][A-Za-z0-9+/=]{20,200}")
_VERSION = re.compile(r"[\w.+!:-]{1,200}")
_MOST_CREDENTIALS, _FACT_CHARS = 20, 300
_NEEDED_KINDS = [
    kind for kind in CredentialKind if kind.fetches_tokens or kind in (CredentialKind.OAUTH, CredentialKind.CERTIFICATE)
]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_roots(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(root, dict) and root.keys() <= {"uri", "name"} and is_texts(list(root.values())) for root in value
    )


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_limits(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_number(number) for number in value.values())


def _one_of(choices: type[Any]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in choices.values


_RULES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "slug", "description", "notes", "worker_label"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("answers_sampling", "answers_elicitation"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(TIMES, _is_number),
    "transport": _one_of(TransportKind),
    "environment": _one_of(Environment),
    "era": _one_of(EraChoice),
    "connection_policy": _one_of(ConnectionPolicy),
    "signs_in_as": _one_of(SignsInAs),
    "network_access": _one_of(NetworkAccess),
    "recording": _one_of(Recording),
    **dict.fromkeys(("tags", "readable_paths", "writable_paths", "network_hosts"), is_texts),
    "roots": _is_roots,
    "limits": _is_limits,
}


def own_columns(reading: EntryReader) -> tuple[dict[str, Any], list[str]]:
    """Return (columns of a registration, names of the omitted secrets)."""
    given = reading.mapping(KEY)
    secrets = given.get(SECRETS, [])
    if not is_texts(secrets):
        reading.problems.append(f"{KEY}.{SECRETS} must be a list of names.")
        secrets = []
    columns: dict[str, Any] = {}
    for name, value in given.items():
        if name in _RULES:
            columns[name] = value
            if not _RULES[name](value):
                reading.problems.append(f"{KEY}.{name} has an unexpected value.")
            elif name == "roots":
                columns[name] = [{"uri": root.get("uri", ""), "name": root.get("name", "")} for root in value]
    if unknown := given.keys() - _RULES.keys() - {SECRETS, OWNER, CREDENTIALS, PACKAGE}:
        reading.notes.append(f"Ignored: {', '.join(f'{KEY}.{short(name)}' for name in sorted(unknown))}.")
    owner = given.get(OWNER)
    if isinstance(owner, str) and owner:
        user = get_user_model()._default_manager.filter(username=owner).first()
        if user is not None:
            columns["owner_id"] = user.pk
        else:
            reading.notes.append(f"The owner {short(owner)} has no account here.")
    return columns, secrets


def own_credentials(reading: EntryReader) -> tuple[Needed, ...]:
    """What the exported server used to authenticate besides headers and variables: it must be set up again here."""
    given = reading.mapping(KEY).get(CREDENTIALS, [])
    found = [_needed(item) for item in given] if isinstance(given, list) else [None]
    if None in found or len(found) > _MOST_CREDENTIALS:
        reading.problems.append(f"{KEY}.{CREDENTIALS} has an unexpected value.")
        return ()
    return tuple(item for item in found if item is not None)


def own_package(reading: EntryReader, columns: Mapping[str, Any]) -> Pin | None:
    """The pin of the exported server, without its lock file: dependencies are pinned at the first start here."""
    given = reading.mapping(KEY).get(PACKAGE)
    command = readable(columns.get("command", ""), columns.get("arguments", []))
    if given is None or command is None:
        return None
    facts = dict(given) if isinstance(given, dict) else {}
    fits = facts.keys() == {"ecosystem", "name", "version", "integrity"} and is_texts(list(facts.values()))
    if not fits or not _INTEGRITY.fullmatch(facts["integrity"]) or not _VERSION.fullmatch(facts["version"]):
        reading.problems.append(f"{KEY}.{PACKAGE} has an unexpected value.")
        return None
    if (facts["ecosystem"], facts["name"]) != (command.ecosystem, command.name):
        reading.notes.append(f"The pin of {short(facts['name'])} does not match the command and is not imported.")
        return None
    pin = Pin(**facts | {"ecosystem": command.ecosystem}, requested=command.requested)
    if not _is_of_the_version(pin, command.version):
        words = f"The pinned version {short(pin.version)} does not match the version in the command, {short(command.version)}"
        reading.notes.append(f"{words}, and is not imported.")
        return None
    return pin


def _is_of_the_version(pin: Pin, written: str) -> bool:
    """Whether the pin is exactly the version in the command: the command is what the importing person sees."""
    if not written:
        return True
    if pin.ecosystem == Ecosystem.IMAGE:
        return pin.integrity == written
    if pin.ecosystem == Ecosystem.PYPI:
        with suppress(InvalidVersion):
            return Version(pin.version) == Version(written)  # 1.2 and 1.2.0 are the same version
    return pin.version == written


def _needed(item: Any) -> Needed | None:
    facts = dict(item) if isinstance(item, dict) else {}
    if not facts.keys() <= {"kind", "issuer", "client", "scopes"} or not is_texts(list(facts.values())):
        return None
    if facts.get("kind") not in _NEEDED_KINDS or any(len(fact) > _FACT_CHARS for fact in facts.values()):
        return None
    return Needed(**facts | {"kind": CredentialKind(facts["kind"])})

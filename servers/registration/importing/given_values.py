"""Headers and environment variables of an entry: which are sealed, which are references, which are still needed."""

from collections.abc import Iterator, Mapping
from typing import Any

from servers.configuration import ValueInput
from servers.enums import TransportKind, ValueKind
from servers.registration.importing.entry_reader import EntryReader, as_text, short
from servers.secret import Secret
from servers.validators import (
    holds_secret,
    is_set_anyway,
    looks_like_token,
    looks_secret,
    references,
    without_references,
)

_WORDS = {ValueKind.HEADER: "header", ValueKind.ENVIRONMENT: "variable"}


def given_values(reading: EntryReader, transport: TransportKind, named: list[str]) -> list[ValueInput]:
    """`named`: headers and variables whose secrets the file omits on purpose."""
    kind = ValueKind.ENVIRONMENT if transport == TransportKind.STDIO else ValueKind.HEADER
    headers = dict(_headers(reading))
    if ours := [name for name in headers if is_set_anyway(name)]:  # many instructions include Accept and Content-Type
        reading.notes.append(f"Ignored: {', '.join(map(short, ours))}, which mcpadmin sets on each request.")
        headers = {name: text for name, text in headers.items() if name not in ours}
    given = {ValueKind.HEADER: headers, ValueKind.ENVIRONMENT: dict(_variables(reading))}
    other = ValueKind.HEADER if kind == ValueKind.ENVIRONMENT else ValueKind.ENVIRONMENT
    if given[other]:
        reading.notes.append(f"Its {_WORDS[other]}s are ignored: this transport does not use them.")
    named = [*named, *(name for name in reading.texts("envKeys") if name not in given[kind])]
    missing = {name: "" for name in named if name not in given[kind]}
    return [_value(reading, kind, name, text, name in named) for name, text in (given[kind] | missing).items()]


# --- where they are found ---------------------------------------------------------------------------------------------
def _headers(reading: EntryReader) -> Iterator[tuple[str, str]]:
    yield from _texts(reading, reading.mapping("headers", "httpHeaders", "requestHeaders"))
    if (options := reading.mapping("requestOptions")).get("headers"):
        headers = options["headers"] if isinstance(options["headers"], dict) else {}
        yield from _texts(reading, headers)
    for name, variable in _texts(reading, reading.mapping("envHttpHeaders")):
        yield name, f"${{{variable}}}"
    if variable := reading.text("bearerTokenEnvVar"):
        yield "Authorization", f"Bearer ${{{variable}}}"


def _variables(reading: EntryReader) -> Iterator[tuple[str, str]]:
    if reading.take("envFile"):
        reading.notes.append("envFile is not supported. Enter its variables after the import.")
    for variable in _passed_on(reading):
        yield variable, f"${{{variable}}}"
    yield from _texts(reading, reading.mapping("env", "environment", "envs"))


def _passed_on(reading: EntryReader) -> list[str]:
    """Names of variables. In Codex, they can also be tables that say which environment each comes from."""
    found = reading.take("envVars")
    if not isinstance(found, list):
        return reading.texts("envVars")
    names = [as_text(item.get("name") if isinstance(item, dict) else item) for item in found]
    if None in names:
        reading.problems.append("envVars must be a list of names, or of objects with a name.")
    for name, item in zip(names, found, strict=True):
        if name is not None and isinstance(item, dict) and item.get("source") == "remote":
            reading.notes.append(
                f"The file takes {short(name)} from a remote environment. Here the worker provides it."
            )
    return [name for name in names if name is not None]


def _texts(reading: EntryReader, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        text = as_text(value)
        if text is None:
            reading.problems.append(f"The value of {short(name)} must be a string.")
        else:
            yield name, text


# --- what they are -----------------------------------------------------------------------------------------------------
def _value(reading: EntryReader, kind: ValueKind, name: str, text: str, left_out: bool) -> ValueInput:
    if left_out or (looks_secret(name) and not text.strip()):
        need = reading.need(f"value:{name}", f"{_WORDS[kind]} {short(name)}", secret=True)
        entered = reading.typed.get(need.key)
        return ValueInput(kind, name, True, Secret(entered) if entered else None, needed=not entered)
    filled, needs = reading.filled(text, f"{_WORDS[kind]} {short(name)}", name=name)
    if any(need.key not in reading.typed for need in needs):
        return ValueInput(kind, name, secret=True, value=None, needed=True)
    if references(filled):
        secret = looks_like_token(without_references(filled)) or any(need.secret for need in needs)
    else:
        secret = holds_secret(name, filled) or any(need.secret for need in needs)
    return ValueInput(kind, name, secret, Secret(filled) if secret else filled)

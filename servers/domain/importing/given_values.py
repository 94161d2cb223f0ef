"""Headers and environment variables of an entry: which are sealed, which are references, which are needed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from servers.domain.form_data import ValueInput
from servers.domain.importing.placeholders import Placeholder, replaced
from servers.domain.importing.reading import Need, Reading, as_text, short
from servers.enums import TransportKind, ValueKind
from servers.secret import Secret
from servers.validators import holds_secret, looks_like_token, looks_secret, references, without_references

_WORDS = {ValueKind.HEADER: "header", ValueKind.ENVIRONMENT: "variable"}
# What instructions print where a credential belongs.
_STAND_IN = re.compile(
    r"(?:bearer\s+|basic\s+)?(?:<[^<>]*>|\[[^\[\]]*\]|your[-_ ].*|x{3,}|\.{3}|…|change[-_ ]?me|replace[-_ ]?me.*)?",
    re.IGNORECASE,
)


def given_values(reading: Reading, transport: TransportKind, named: list[str]) -> list[ValueInput]:
    """`named`: headers and variables whose secrets the file leaves out on purpose."""
    kind = ValueKind.ENVIRONMENT if transport == TransportKind.STDIO else ValueKind.HEADER
    given = {ValueKind.HEADER: dict(_headers(reading)), ValueKind.ENVIRONMENT: dict(_variables(reading))}
    other = ValueKind.HEADER if kind == ValueKind.ENVIRONMENT else ValueKind.ENVIRONMENT
    if given[other]:
        reading.notes.append(f"Its {_WORDS[other]}s are left out: this transport does not use them.")
    missing = {name: "" for name in named if name not in given[kind]}
    return [_value(reading, kind, name, text, name in named) for name, text in (given[kind] | missing).items()]


# --- where they stand --------------------------------------------------------------------------------------------------
def _headers(reading: Reading) -> Iterator[tuple[str, str]]:
    yield from _texts(reading, reading.mapping("headers", "httpHeaders", "requestHeaders"))
    for name, variable in _texts(reading, reading.mapping("envHttpHeaders")):
        yield name, f"${{{variable}}}"
    if variable := reading.text("bearerTokenEnvVar"):
        yield "Authorization", f"Bearer ${{{variable}}}"


def _variables(reading: Reading) -> Iterator[tuple[str, str]]:
    if reading.take("envFile"):
        reading.notes.append("envFile is not read here. Enter its variables after the import.")
    for variable in reading.texts("envVars"):
        yield variable, f"${{{variable}}}"
    yield from _texts(reading, reading.mapping("env", "environment"))


def _texts(reading: Reading, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        text = as_text(value)
        if text is None:
            reading.problems.append(f"The value of {short(name)} is not text.")
        else:
            yield name, text


# --- what they are -----------------------------------------------------------------------------------------------------
def _value(reading: Reading, kind: ValueKind, name: str, text: str, left_out: bool) -> ValueInput:
    if left_out or (looks_secret(name) and _STAND_IN.fullmatch(text.strip())):
        return _entered(reading, kind, name)
    needs: list[Need] = []
    filled = replaced(text, lambda found: _put(reading, kind, name, found, needs))
    if any(need.key not in reading.typed for need in needs):
        return ValueInput(kind, name, secret=True, value=None, needed=True)
    if references(filled):
        secret = looks_like_token(without_references(filled)) or any(need.secret for need in needs)
    else:
        secret = holds_secret(name, filled) or any(need.secret for need in needs)
    return ValueInput(kind, name, secret, Secret(filled) if secret else filled)


def _entered(reading: Reading, kind: ValueKind, name: str) -> ValueInput:
    need = reading.need(f"value:{name}", f"{_WORDS[kind]} {short(name)}", secret=True)
    text = reading.typed.get(need.key)
    return ValueInput(kind, name, True, Secret(text) if text else None, needed=not text)


def _put(reading: Reading, kind: ValueKind, name: str, found: Placeholder, needs: list[Need]) -> str | None:
    if found.drops_default:
        reading.notes.append(f"The default of ${{{found.key}}} is left out: without that variable, connecting fails.")
    if found.reference:
        return found.reference
    needs.append(reading.need(found.key, f"{_WORDS[kind]} {short(name)}", secret=looks_secret(name)))
    return reading.typed.get(found.key)

"""Parses WWW-Authenticate of a refusal (RFC 9110 section 11.6.1, RFC 6750, RFC 9449, RFC 9728).

Commas join lines and also separate challenges and their parameters, so the parser reads token by token. A token
followed by `=` is a parameter; any other token begins a challenge.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .scopes import scopes_in

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"|([!#$%&\'*+.^_`|~0-9A-Za-z:/?@-]+)', re.DOTALL)
_TOKEN68 = re.compile(r"[ \t]+[0-9A-Za-z._~+/-]+=*[ \t]*(?=,|\Z)")
_BETWEEN = re.compile(r"[ \t,]*")
_JUNK = re.compile(r"[^,]*")
#: parameters parsed at most; more add no information
_MOST = 64


@dataclass(slots=True)
class Challenge:
    """One challenge. Names are in lower case, each with its values in order, because some servers repeat a name."""

    scheme: str
    values: dict[str, list[str]] = field(default_factory=dict)

    def first(self, name: str) -> str:
        return next(iter(self.values.get(name, ())), "")


@dataclass(frozen=True, slots=True)
class Demand:
    """What the server demands. `metadata_urls`: where the server says its metadata is, best first."""

    scheme: str = ""
    metadata_urls: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    error: str = ""


def demanded(lines: Iterable[str]) -> Demand | None:
    """None if the server offers only schemes that we do not support. Without a challenge, an empty Demand: the client
    then uses the well-known URIs (MCP)."""
    found = read(lines)
    if not found:
        return Demand()
    ours = [one for one in found if one.scheme in ("dpop", "bearer")]
    if not ours:
        return None
    ours.sort(key=lambda one: one.scheme != "dpop")
    return Demand(
        scheme=ours[0].scheme,
        metadata_urls=tuple(url for one in ours for url in one.values.get("resource_metadata", ())),
        scopes=next((scopes_in(one.first("scope")) for one in ours if one.first("scope")), ()),
        error=next((one.first("error") for one in ours if one.first("error")), ""),
    )


def read(lines: Iterable[str]) -> list[Challenge]:
    """All challenges of all lines. Unknown text is skipped up to the next comma."""
    return [challenge for line in lines for challenge in _line(line)]


def _line(text: str) -> list[Challenge]:
    found: list[Challenge] = []
    at, count = 0, 0
    while (at := _end(_BETWEEN, text, at)) < len(text) and count < _MOST:
        count += 1
        token = _TOKEN.match(text, at)
        if token is None:
            at = max(at + 1, _end(_JUNK, text, at))
            continue
        at = token.end()
        equals = _EQUALS.match(text, at)
        value = _VALUE.match(text, equals.end()) if equals else None
        if value is None:
            found.append(Challenge(token[0].lower()))
            at = _end(_TOKEN68, text, at)
        elif found:
            found[-1].values.setdefault(token[0].lower(), []).append(_plain(value))
            at = value.end()
        else:
            at = value.end()
    return found


def _end(pattern: "re.Pattern[str]", text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _plain(value: "re.Match[str]") -> str:
    quoted = value[1]
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else value[2]

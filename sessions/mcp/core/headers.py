"""Headers that mirror a modern request (2026-07-28, *Streamable HTTP / Request metadata headers*).

`x-mcp-header` in a tool's input schema requests that an argument be repeated as `Mcp-Param-<name>`. A tool whose
annotations break the rules must be left out entirely.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import InvalidRequest
from .methods import NAMED_BY, TOOLS_CALL

ANNOTATION: Final = "x-mcp-header"
MAX_SAFE_INTEGER: Final = 2**53 - 1

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_PLAIN: Final = re.compile(r"[ -~]*\Z")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=\Z", re.IGNORECASE | re.DOTALL)
_MIRRORED_TYPES: Final = ("string", "integer", "boolean")
#: the values of these keys are data, not schema
_DATA: Final = frozenset({"default", "const", "enum", "examples"})


class BadAnnotation(ValueError):
    """The tool must be left out; the message says why."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """One argument that a header repeats: the path of keys to it, its type, and the header name."""

    path: tuple[str, ...]
    type: str
    header: str


def encode_value(value: str) -> str:
    """The value unchanged, or in the `=?base64?...?=` form if a header could not carry it unchanged. InvalidRequest for
    half of a surrogate pair."""
    if _PLAIN.match(value) and value.strip(" \t") == value and not _ENCODED.match(value):
        return value
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise InvalidRequest("A string that a header repeats contains an unpaired surrogate.") from exc
    return "=?base64?" + base64.b64encode(data).decode("ascii") + "?="


def request_headers(
    method: str, params: Mapping[str, Any], revision: str, mirrored: tuple[Mirrored, ...] = ()
) -> dict[str, str]:
    """The metadata headers of one modern request."""
    headers = {"MCP-Protocol-Version": revision, "Mcp-Method": method}
    key = NAMED_BY.get(method)
    if key is not None and isinstance(params.get(key), str):
        headers["Mcp-Name"] = encode_value(params[key])
    if method == TOOLS_CALL:
        arguments = params.get("arguments")
        for entry in mirrored:
            value = _text(_at(arguments, entry.path), entry.type)
            if value is not None:
                headers["Mcp-Param-" + entry.header] = encode_value(value)
    return headers


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _text(value: Any, kind: str) -> str | None:
    """The text of the value. None if the type does not match: omit the header and let the server complain."""
    if kind == "boolean":
        return ("true" if value else "false") if isinstance(value, bool) else None
    if kind == "string":
        return value if isinstance(value, str) else None
    return _integer_text(value)


def _integer_text(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        return None
    if abs(value) > MAX_SAFE_INTEGER:
        raise InvalidRequest("An integer that a header repeats is outside the range of exact numbers (2^53 - 1).")
    return str(int(value))


def mirrored_arguments(schema: Any) -> tuple[Mirrored, ...]:
    """All annotated arguments of an input schema. BadAnnotation if one breaks a rule."""
    found = tuple(_annotations(schema, (), reachable=False))
    names = [entry.header.lower() for entry in found]
    if len(set(names)) != len(names):
        raise BadAnnotation("two arguments ask for the same header")
    return found


def _annotations(schema: Any, path: tuple[str, ...], *, reachable: bool) -> Iterator[Mirrored]:
    """`reachable`: only `properties` lead from the root to this schema, and it is not the root itself."""
    if not isinstance(schema, dict):
        return
    if ANNOTATION in schema:
        yield _checked(schema, path, reachable=reachable)
    straight = reachable or not path
    for key, value in schema.items():
        if key in _DATA or key == ANNOTATION:
            continue
        if key == "properties" and isinstance(value, dict):
            for name, child in value.items():
                yield from _annotations(child, (*path, name), reachable=straight)
        else:
            yield from _elsewhere(value)


def _elsewhere(value: Any) -> Iterator[Mirrored]:
    """Reject annotations where none is allowed. Yields nothing. The message's depth limit bounds the recursion."""
    if isinstance(value, dict):
        if ANNOTATION in value:
            raise BadAnnotation("x-mcp-header is allowed on plain properties only")
        for key, child in value.items():
            if key not in _DATA:
                yield from _elsewhere(child)
    elif isinstance(value, list):
        for child in value:
            yield from _elsewhere(child)


def _checked(schema: dict[str, Any], path: tuple[str, ...], *, reachable: bool) -> Mirrored:
    name, kind = schema[ANNOTATION], schema.get("type")
    if not reachable:
        raise BadAnnotation("x-mcp-header is allowed on plain properties only")
    if not isinstance(name, str) or not _TOKEN.match(name):
        raise BadAnnotation("x-mcp-header is not a valid header name")
    if kind not in _MIRRORED_TYPES:
        raise BadAnnotation("x-mcp-header is allowed on string, integer and boolean only")
    return Mirrored(path, str(kind), name)

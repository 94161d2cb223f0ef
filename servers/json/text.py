"""Reads and writes JSON text strictly: duplicate keys, NaN and infinity are rejected, large integers are kept exactly."""

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

Json = Any  # str | int | float | bool | None | list | dict; a recursive alias does not help type checkers here

MAX_DIGITS = 4_000
"""Longest integer, in digits; Python refuses to print ints beyond 4,300."""
MAX_DEPTH = 64

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")


class JsonProblem(ValueError):
    """Why the text is not a JSON value; line and column count from 1, or are 0 if the position is unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message, line, column)
        self.message, self.line, self.column = message, line, column

    def __str__(self) -> str:
        return f"Line {self.line}, column {self.column}: {self.message}" if self.line else self.message


def loads(text: str) -> Json:
    """Raises JsonProblem."""
    value = _loads(text, _finite)
    if depth(value, MAX_DEPTH) > MAX_DEPTH:
        raise JsonProblem(f"Nested more than {MAX_DEPTH} levels deep, which is a fixed limit.")
    return value


def exact(text: str) -> Json:
    """The value that can be shown in place of an untrusted text, of any depth: a number that a float would change is
    rejected too. Raises JsonProblem."""
    return _loads(text, _unchanged)


def _loads(text: str, number_of: Callable[[str], float]) -> Json:
    try:
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=number_of,
        )
    except json.JSONDecodeError as exc:
        raise JsonProblem(_wording(exc, text), exc.lineno, exc.colno) from exc
    except RecursionError as exc:
        raise JsonProblem("Nested too deeply.") from exc


def dumps(value: Json, *, indent: int | None = 2, ascii_only: bool = False) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only)


def number(text: str, *, integral: bool) -> int | float:
    """Parse a number as people type it. Raises ValueError with a sentence for them."""
    text = text.strip()
    if _INTEGER.match(text):
        return _integer(text)
    if not _NUMBER.match(text):
        raise ValueError("Enter a whole number." if integral else "Enter a number.")
    value = _finite(text)
    return _whole(text) if integral else value


def _whole(text: str) -> int:
    """The integer value of a decimal or exponent: a float would round numbers beyond 2^53."""
    try:
        value = Decimal(text)
    except InvalidOperation as exc:  # finite, with an exponent beyond Decimal: a fraction, or an odd zero
        raise ValueError("Enter a whole number.") from exc
    if value != value.to_integral_value():
        raise ValueError("Enter a whole number.")
    return int(value)


def number_text(value: float) -> str:
    return json.dumps(value)


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise JsonProblem(f"A number has more than {MAX_DIGITS:,} digits, which is a fixed limit.")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonProblem("A number is too large.")
    return value


def _unchanged(text: str) -> float:
    value = float(text)
    if repr(value) == text:
        return value
    try:
        same = Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent beyond Decimal
        same = False
    if not same:
        raise JsonProblem(f"The number {text[:40]} has more digits than mcpadmin keeps.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise JsonProblem(f"The key {json.dumps(key[:80])} appears twice.")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise JsonProblem(f"{name} is not a JSON value.")


_WORDS = {
    "Expecting value": "a value is missing or not quoted",
    "Expecting property name enclosed in double quotes": "a key in double quotes is expected",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Extra data": "there is more text after the end of the value",
    "Unterminated string starting at": "this text has no closing quote",
    "Illegal trailing comma before end of object": "there is an extra comma",
    "Illegal trailing comma before end of array": "there is an extra comma",
    "Invalid control character at": "a line break or control character inside quotes must be escaped",
}


def _wording(exc: json.JSONDecodeError, text: str) -> str:
    if not text.strip():
        return "no JSON value is given."
    message = _WORDS.get(exc.msg, exc.msg.lower())
    return f"{message}."


def children(value: object) -> Iterator[object]:
    """The direct parts of a JSON container; nothing for a leaf."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def depth(value: object, limit: int) -> int:
    """Nesting of containers, counted without recursion and only up to `limit` + 1."""
    level, layer = 0, [value]
    while level <= limit:
        layer = [part for item in layer for part in children(item) if isinstance(part, dict | list)]
        if not layer:
            return level
        level += 1
    return level

"""A quick check whether a value fits a schema: picks the branch of a union and decides `if`. It is not authoritative.

It evaluates regular expressions only with the linear-time engine, and stops after a fixed number of steps.
"""

import operator
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jsonschema_rs

from servers.json.text import Json
from servers.schemas.resolve import Document
from servers.schemas.shapes import Schema, Unsupported, count_of, number_of, required_of, types_of
from servers.schemas.values import ABSENT, is_type, same

MAX_STEPS = 4_000
MAX_TOTAL_STEPS = 20_000
_PATTERN_BYTES = 200_000


def fits(document: Document, schema: Schema, value: Json) -> bool:
    """Whether the value would be accepted, if that can be decided in bounded time; False otherwise."""
    if value is ABSENT:
        return False
    try:
        return _Matcher(document).fits(schema, value)
    except (Unsupported, RecursionError):
        return False


def likeness(document: Document, schema: Schema, value: Json) -> int:
    """How close a value that fits no branch is to this schema: for a form that is still being filled in."""
    try:
        flat = document.effective(schema, lambda condition: fits(document, condition.test, value))
    except Unsupported:
        return -1
    types = types_of(flat) or (["object"] if "properties" in flat else [])
    score = 4 if not types or any(is_type(value, name) for name in types) else 0
    if isinstance(value, dict):
        for key, sub in flat.get("properties", {}).items():
            if key in value:
                fixed = isinstance(sub, dict) and ("const" in sub or "enum" in sub)
                if fits(document, sub, value[key]):
                    score += 8 if fixed else 2
                else:
                    score += -8 if fixed else 1
    return score


class _Matcher:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._steps = 0

    def fits(self, schema: Schema, value: Json) -> bool:
        self._spend(1)
        flat = self._document.effective(schema, lambda condition: self.fits(condition.test, value))
        self._spend(len(flat.get("enum", ())) // 16)
        return _fits_keywords(value, flat) and all(self._applies(flat, value))

    def _spend(self, steps: int) -> None:
        self._steps += steps
        self._document.steps += steps
        if self._steps > MAX_STEPS or self._document.steps > MAX_TOTAL_STEPS:
            raise Unsupported("too much to look at")

    def _applies(self, flat: dict[str, Any], value: Json) -> Iterator[bool]:
        if "not" in flat:
            yield not self.fits(flat["not"], value)
        if "anyOf" in flat:
            yield any(self.fits(branch, value) for branch in flat["anyOf"])
        if "oneOf" in flat:
            yield sum(self.fits(branch, value) for branch in flat["oneOf"]) == 1
        if isinstance(value, dict):
            yield from self._properties(flat, value)
        if isinstance(value, list):
            yield from self._items(flat, value)

    def _properties(self, flat: dict[str, Any], value: dict[str, Json]) -> Iterator[bool]:
        yield all(key in value for key in required_of(flat))
        known = flat.get("properties", {})
        other = flat.get("additionalProperties", True)
        for key, item in value.items():
            if key in known:
                yield self.fits(known[key], item)
            elif other is False:
                yield any(_found(pattern, key) for pattern in flat.get("patternProperties", {}))
            elif isinstance(other, dict) and not flat.get("patternProperties"):
                yield self.fits(other, item)

    def _items(self, flat: dict[str, Any], value: list[Json]) -> Iterator[bool]:
        items = flat.get("items", True)
        leading = items if isinstance(items, list) else flat.get("prefixItems", [])
        for schema, item in zip(leading, value, strict=False):
            yield self.fits(schema, item)
        rest = flat.get("additionalItems", True) if isinstance(items, list) else items
        for item in value[len(leading) :]:
            yield self.fits(rest, item)


_NUMBER_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


def _fits_keywords(value: Json, flat: dict[str, Any]) -> bool:
    """Whether the value fits the keywords that contain no schema."""
    types = types_of(flat)
    if types and not any(is_type(value, name) for name in types):
        return False
    if "const" in flat and not same(flat["const"], value):
        return False
    if "enum" in flat and not any(same(item, value) for item in flat["enum"]):
        return False
    if isinstance(value, str):
        pattern = flat.get("pattern")
        return _within(len(value), flat, "minLength", "maxLength") and (
            not isinstance(pattern, str) or _found(pattern, value)
        )
    if isinstance(value, list):
        return _within(len(value), flat, "minItems", "maxItems")
    if isinstance(value, dict):
        return _within(len(value), flat, "minProperties", "maxProperties")
    if isinstance(value, int | float) and not isinstance(value, bool):
        limits = ((test, number_of(flat, key)) for key, test in _NUMBER_TESTS.items())
        return all(limit is None or test(value, limit) for test, limit in limits)
    return True


def _within(size: int, flat: dict[str, Any], low: str, high: str) -> bool:
    least, most = count_of(flat, low), count_of(flat, high)
    return (least is None or size >= least) and (most is None or size <= most)


def _found(pattern: str, text: str) -> bool:
    """Whether the pattern is found. Also True if the linear engine does not support the pattern: then it is ignored."""
    validator = _linear(pattern[:1_000])
    return validator is None or validator.is_valid(text)


@lru_cache(maxsize=256)
def _linear(pattern: str) -> Any:
    options = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return None

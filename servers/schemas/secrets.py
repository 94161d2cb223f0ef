"""What a schema declares secret: pages keep no draft of it, and it is masked before it is stored."""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from servers.schemas.references import References, Unresolvable
from servers.schemas.vocabulary import REFERENCES


def is_secret(flat: dict[str, Any]) -> bool:
    return flat.get("writeOnly") is True or flat.get("format") == "password"


def may_hold_secret(definition: str) -> bool:
    """A fast check of a definition's JSON text: False if no schema in it declares a secret."""
    return '"password"' in definition or "writeOnly" in definition


def holds_secret(schema: Any) -> bool:
    """Whether it declares a secret anywhere, including targets of `$ref`: definitions are in the same document."""
    return any(map(is_secret, _inside(schema)))


def _inside(schema: Any) -> Iterator[dict[str, Any]]:
    """All objects in it, including itself."""
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield part
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)


# --- where in a value --------------------------------------------------------------------------------------------------
_STEPS = 50_000
_LEADS = frozenset(REFERENCES)
#: what an unresolvable reference may hide
_SECRET: dict[str, Any] = {"writeOnly": True}
_Place = tuple[str | int, ...]


class _TooMuch(Exception):
    pass


def secret_places(schema: Any, value: Any) -> set[_Place]:
    """Paths of the values that `schema` declares secret. Every branch counts, whether or not the value matches it, a
    name pattern counts for every name, and an unresolvable reference counts as secret if the schema has any secret. If
    a hostile schema takes too long to follow, the whole value is secret."""
    steps = count()

    def spend() -> None:
        if next(steps) > _STEPS:
            raise _TooMuch

    try:
        return set(_SecretPlaces(schema, spend).of(schema, value, ()))
    except (_TooMuch, RecursionError):
        return {()}


class _SecretPlaces:
    def __init__(self, schema: Any, spend: Any) -> None:
        self._references, self._spend = References(schema, spend), spend
        self._has_secret = holds_secret(schema)
        #: by the id of a schema; all schemas live as long as this object
        self._leads: dict[int, bool] = {}

    def of(self, schema: Any, value: Any, place: _Place) -> Iterator[_Place]:
        if not self._leads_to_secret(schema):  # a list may have thousands of numbers
            return
        for part in self._parts(schema):
            if is_secret(part):
                yield place
                return
            if isinstance(value, dict):
                for name, below in value.items():
                    for inner in _of_member(part, name):
                        yield from self.of(inner, below, (*place, name))
            elif isinstance(value, list):
                for number, below in enumerate(value):
                    for inner in _of_item(part, number):
                        yield from self.of(inner, below, (*place, number))

    def _leads_to_secret(self, schema: Any) -> bool:
        """False only if nothing in it is secret and it contains no references."""
        if not isinstance(schema, dict):
            return False
        if (known := self._leads.get(id(schema))) is None:
            known = self._leads[id(schema)] = any(is_secret(part) or _LEADS & part.keys() for part in _inside(schema))
        return known

    def _parts(self, schema: Any) -> Iterator[dict[str, Any]]:
        """The schema and all others that apply to the same value."""
        waiting, seen = [schema], set()
        while waiting:
            part = waiting.pop()
            self._spend()
            if not isinstance(part, dict) or id(part) in seen:
                continue
            seen.add(id(part))
            yield part
            for word in ("allOf", "anyOf", "oneOf"):
                waiting.extend(_list(part.get(word)))
            waiting.extend(part.get(word) for word in ("if", "then", "else"))
            for word in ("dependentSchemas", "dependencies"):  # the latter before 2019-09, also with lists of names
                waiting.extend(_values(part.get(word)))
            for word in _LEADS:
                if word in part:
                    try:
                        waiting.append(self._references.target(part[word], part, dynamic=word != "$ref"))
                    except Unresolvable:
                        if self._has_secret:
                            yield _SECRET


def _of_member(part: Mapping[str, Any], name: str) -> Iterator[Any]:
    properties = part.get("properties")
    if isinstance(properties, dict) and name in properties:
        yield properties[name]
    else:
        yield part.get("additionalProperties")
        yield part.get("unevaluatedProperties")
    yield from _values(part.get("patternProperties"))


def _of_item(part: Mapping[str, Any], number: int) -> Iterator[Any]:
    items = part.get("items")
    prefix = _list(part.get("prefixItems")) or _list(items)  # a list of `items`: before 2020-12
    if number < len(prefix):
        yield prefix[number]
    else:
        yield items
        yield part.get("additionalItems")
        yield part.get("unevaluatedItems")
    yield part.get("contains")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []

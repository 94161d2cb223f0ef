"""The values in a form while it is edited: JSON, plus what JSON cannot express (not sent, not parseable, chosen)."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from servers.json.text import Json


class _Marker(Enum):
    ABSENT = "absent"
    FRESH = "fresh"


ABSENT: Final = _Marker.ABSENT
"""No value: the key is not sent."""
FRESH: Final = _Marker.FRESH
"""Present, and to be filled with its initial value (the result of "Add")."""


@dataclass(frozen=True)
class Unread:
    """Text that is not a value yet ("12a" in a number field). `raw`: it is from a JSON control."""

    text: str
    raw: bool = False


@dataclass(frozen=True)
class Branch:
    """The branch of a union that a person chose, so that re-rendering does not guess again."""

    index: int
    value: Any


@dataclass(frozen=True)
class PendingKey:
    """An object key that cannot be used yet because it is empty or a duplicate. Used as a dict key in a draft."""

    row: int
    text: str


Draft = Any  # Json | Unread | Branch | ABSENT | FRESH, nested; dict keys may be PendingKey


class Unsendable(ValueError):
    """A draft still contains something that is not JSON."""


def clean(draft: Draft) -> Json:
    """The JSON value of a draft. Raises Unsendable if a part of it cannot be parsed yet."""
    if isinstance(draft, Branch):
        return clean(draft.value)
    if isinstance(draft, Unread | _Marker):
        raise Unsendable("the form holds text that is not a value yet")
    if isinstance(draft, list):
        return [clean(item) for item in draft]
    if isinstance(draft, dict):
        if any(isinstance(key, PendingKey) for key in draft):
            raise Unsendable("a property has no usable name yet")
        return {key: clean(item) for key, item in draft.items()}
    return draft


def loose(draft: Draft) -> Json:
    """The JSON value of a draft without the parts that cannot be parsed; ABSENT if nothing is left."""
    if isinstance(draft, Branch):
        return loose(draft.value)
    if isinstance(draft, Unread | _Marker):
        return ABSENT
    if isinstance(draft, list):
        return [item for item in map(loose, draft) if item is not ABSENT]
    if isinstance(draft, dict):
        kept = ((key, loose(item)) for key, item in draft.items() if isinstance(key, str))
        return {key: item for key, item in kept if item is not ABSENT}
    return draft


def type_name(value: Json) -> str:
    """The JSON type of a Python value; `1.0` is an "integer" according to JSON Schema."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "")


def is_type(value: Json, name: str) -> bool:
    actual = type_name(value)
    return actual == name or (name == "number" and actual == "integer")


def same(left: Json, right: Json) -> bool:
    """Equality as JSON Schema defines it: 1 equals 1.0, neither equals true or "1"."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def hashable(value: Json) -> Hashable:
    """A key that is equal for two values exactly if they are the `same`."""
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, list):
        return (list, tuple(hashable(item) for item in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, hashable(item)) for key, item in value.items()))
    return value

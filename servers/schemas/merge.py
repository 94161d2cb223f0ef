"""allOf as one schema that combines both sides. The checker has the last word, so the result may be more permissive."""

from collections.abc import Callable
from typing import Any

from servers.schemas.shapes import Unsupported, required_of, types_of
from servers.schemas.values import hashable, same

Flat = dict[str, Any]


def merge(first: Flat, second: Flat) -> Flat:
    """`first` wins for annotations (title, description, default). Raises Unsupported if they contradict each other."""
    if _has_union(first) and _has_union(second):
        raise Unsupported("Two choices (anyOf, oneOf) apply to this value at once.")
    merged = {**second, **first}
    for key in first.keys() & second.keys():
        combine = _COMBINE.get(key)
        if combine is not None:
            merged[key] = combine(first[key], second[key])

    left, right = types_of(first), types_of(second)
    if left and right:
        common = [name for name in left if name in right or (name == "integer" and "number" in right)]
        if "number" in left and "integer" in right and "integer" not in common:
            common.append("integer")
        if not common:
            raise Unsupported("The schema asks for two types at once.")
        merged["type"] = common if len(common) > 1 else common[0]

    if "const" in first and "const" in second and not same(first["const"], second["const"]):
        raise Unsupported("The schema asks for two values at once.")
    if "enum" in first and "enum" in second:
        allowed = {hashable(item) for item in second["enum"]}
        merged["enum"] = [item for item in first["enum"] if hashable(item) in allowed]
        merged.pop("enumNames", None)
    return merged


def _has_union(flat: Flat) -> bool:
    return "anyOf" in flat or "oneOf" in flat


def _both(first: Any, second: Any) -> Any:
    if first is False or second is False:
        return False
    if first is True or first == second:
        return second
    return first if second is True else {"allOf": [first, second]}


def _each(first: Flat, second: Flat) -> Flat:
    return {**first, **{key: _both(first[key], sub) if key in first else sub for key, sub in second.items()}}


def _required(first: Any, second: Any) -> list[str]:
    return list(dict.fromkeys([*required_of({"required": first}), *required_of({"required": second})]))


def _number(choose: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def combine(first: Any, second: Any) -> Any:
        sane = [item for item in (first, second) if isinstance(item, int | float)]
        return choose(sane) if sane else first

    return combine


def _items(first: Any, second: Any) -> Any:
    return first if isinstance(first, list) or isinstance(second, list) else _both(first, second)


_LARGEST, _SMALLEST = _number(max), _number(min)
_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "properties": _each,
    "patternProperties": _each,
    "required": _required,
    "additionalProperties": _both,
    "propertyNames": _both,
    "items": _items,
    **dict.fromkeys(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"], _LARGEST),
    **dict.fromkeys(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"], _SMALLEST),
}

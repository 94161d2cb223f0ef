"""How two schemas differ in what they say about a single value: type, choices, bounds. Plain values only."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from servers.schemas.schema_reading import UNKNOWN, Budget, Flat, values_of
from servers.schemas.vocabulary import REFERENCES

SHOWN = 60


class Effect(Enum):
    """What the new schema accepts compared to the old one."""

    LESS = "less"
    MORE = "more"
    OTHER = "other"  # less and more, or undecidable
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Finding:
    """`place` as people write it ("filter.items[].id", "" for the whole); `words` continue a sentence after it."""

    words: str
    effect: Effect
    place: str = ""

    def under(self, name: str) -> "Finding":
        rest = self.place
        return replace(self, place=name + rest if not rest or rest.startswith("[") else f"{name}.{rest}")


_SIZES = {
    "minLength": ("length", 0, True),
    "maxLength": ("length", None, False),
    "minItems": ("number of items", 0, True),
    "maxItems": ("number of items", None, False),
    "minProperties": ("number of properties", 0, True),
    "maxProperties": ("number of properties", None, False),
}
#: the other restrictions on a value: if two differ, they cannot be compared
OPAQUE = (
    *("pattern", "format", "multipleOf", "not", "if", "then", "else", "contains", "minContains", "maxContains"),
    *("propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedItems"),
    *("unevaluatedProperties", "contentEncoding", "contentMediaType", *REFERENCES),
)
_MISSING = object()


def shown(value: Any) -> str:
    """A schema value for use in a sentence, truncated."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


# --- types -----------------------------------------------------------------------------------------------------------
def types_of(flat: Flat) -> frozenset[str] | None:
    """The accepted types; None means any type."""
    named = flat.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(str(kind) for kind in named)
    if (values := values_of(flat)) is not None:
        return frozenset(_type_of(value) for value in values)
    return frozenset({"object"}) if "properties" in flat else None


def type_change(before: Flat, after: Flat) -> Finding | None:
    one, other = types_of(before), types_of(after)
    if one == other:
        return None
    words = f"accepted {_either(one)} and now accepts {_either(other)}"
    less, more = not _covers(other, one), not _covers(one, other)
    if not less and not more:
        return None
    return Finding(words, Effect.OTHER if less and more else Effect.LESS if less else Effect.MORE)


def _covers(wide: frozenset[str] | None, narrow: frozenset[str] | None) -> bool:
    if wide is None:
        return True
    return narrow is not None and all(kind in wide or (kind == "integer" and "number" in wide) for kind in narrow)


def _either(types: frozenset[str] | None) -> str:
    return "any type" if types is None else shown(" or ".join(sorted(types)) or "no type")


def _type_of(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "array"


# --- values ----------------------------------------------------------------------------------------------------------
def value_changes(before: Flat, after: Flat, budget: Budget) -> Iterator[Finding]:
    one, other = _texts(before, budget), _texts(after, budget)
    if one is None and other is not None:
        yield Finding(f"now accepts only {_some(list(other))}", Effect.LESS)
    elif one is not None and other is None:
        yield Finding(f"is no longer limited to {_some(list(one))}", Effect.MORE)
    elif one is not None and other is not None:
        if lost := [text for text in one if text not in other]:
            yield Finding(f"no longer accepts {_some(lost)}", Effect.LESS)
        if gained := [text for text in other if text not in one]:
            yield Finding(f"also accepts {_some(gained)}", Effect.MORE)


def _texts(flat: Flat, budget: Budget) -> dict[str, None] | None:
    values = values_of(flat)
    if values is None:
        return None
    return {budget.text(value): None for value in values}


def _some(texts: list[str]) -> str:
    few = ", ".join(shown(text) for text in texts[:3])
    return few if len(texts) <= 3 else f"{few} and {len(texts) - 3} more"


# --- bounds ----------------------------------------------------------------------------------------------------------
def bound_changes(before: Flat, after: Flat) -> Iterator[Finding]:
    yield from _range_change(before, after, "minimum", "exclusiveMinimum", 1)
    yield from _range_change(before, after, "maximum", "exclusiveMaximum", -1)
    for keyword, (noun, default, lower) in _SIZES.items():
        one, other = (_number(flat.get(keyword)) for flat in (before, after))
        one, other = (default if size is None else size for size in (one, other))
        if one == other:
            continue
        words = f"has a {'minimum' if lower else 'maximum'} {noun} of {_bound(other)} instead of {_bound(one)}"
        yield Finding(words, _tighter(one, other, lower=lower))
    if before.get("uniqueItems") is not True and after.get("uniqueItems") is True:
        yield Finding("no longer accepts duplicate items", Effect.LESS)
    elif before.get("uniqueItems") is True and after.get("uniqueItems") is not True:
        yield Finding("accepts duplicate items", Effect.MORE)


def _range_change(before: Flat, after: Flat, keyword: str, exclusive: str, sign: int) -> Iterator[Finding]:
    one, other = (_edge(flat, keyword, exclusive, sign) for flat in (before, after))
    if one == other:
        return
    effect = _tighter(one and _scaled(one, sign), other and _scaled(other, sign), lower=True)
    yield Finding(f"has a {keyword} of {_edge_words(other)} instead of {_edge_words(one)}", effect)


_Edge = tuple[float, bool]  # a number, and whether it is excluded


def _edge(flat: Flat, keyword: str, exclusive: str, sign: int) -> _Edge | None:
    open_, closed = _number(flat.get(exclusive)), _number(flat.get(keyword))
    edges = [
        (number, left_out)
        for number, left_out in ((closed, flat.get(exclusive) is True), (open_, True))
        if number is not None
    ]
    return max(edges, key=lambda edge: _scaled(edge, sign)) if edges else None


def _scaled(edge: _Edge, sign: int) -> _Edge:
    return sign * edge[0], edge[1]


def _edge_words(edge: _Edge | None) -> str:
    return "none" if edge is None else f"{shown(edge[0])}{' (not itself)' if edge[1] else ''}"


def _tighter(one: Any, other: Any, *, lower: bool) -> Effect:
    if one is None or other is None:
        return Effect.LESS if one is None else Effect.MORE
    return Effect.LESS if (other > one) is lower else Effect.MORE


def _bound(size: Any) -> str:
    return "none" if size is None else shown(size)


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


# --- the rest --------------------------------------------------------------------------------------------------------
def opaque_changes(before: Flat, after: Flat, budget: Budget) -> Iterator[Finding]:
    """Restrictions about which it is only known that they were added, removed or changed."""
    if UNKNOWN in before or UNKNOWN in after:
        yield Finding("has a reference that cannot be resolved, so it cannot be compared", Effect.OTHER)
    joined = sorted({key for flat in (before, after) for key in flat if key.startswith("allOf ")})
    for keyword in [*OPAQUE, *joined]:
        one, other = before.get(keyword, _MISSING), after.get(keyword, _MISSING)
        if one is _MISSING and other is _MISSING:
            continue
        if one is _MISSING:
            yield Finding(f"has the new condition {_named(keyword, other)}", Effect.LESS)
        elif other is _MISSING:
            yield Finding(f"lost the condition {_named(keyword, one)}", Effect.MORE)
        elif not budget.same(one, other):
            yield Finding(f"has a different condition {_named(keyword, other)}", Effect.OTHER)


def _named(keyword: str, value: Any) -> str:
    return f"{keyword} {shown(value)}" if isinstance(value, str | int | float) else keyword


def default_change(before: Flat, after: Flat, budget: Budget) -> Finding | None:
    one, other = before.get("default", _MISSING), after.get("default", _MISSING)
    if one is other or (one is not _MISSING and other is not _MISSING and budget.same(one, other)):
        return None
    words = "none" if other is _MISSING else shown(other)
    return Finding(f"has the default {words} instead of {'none' if one is _MISSING else shown(one)}", Effect.SAME)

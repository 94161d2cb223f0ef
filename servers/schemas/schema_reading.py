"""What a JSON Schema says at one place: local references followed, allOf merged, choices spread out; within a budget.

Plain values only: no Django, nothing is fetched, nothing recurses without a bound.
"""

import json
from itertools import permutations
from typing import Any

from servers.json.text import children
from servers.schemas.references import MAX_CHAIN, References, Unresolvable
from servers.schemas.values import is_type, same, type_name
from servers.schemas.vocabulary import (
    ANNOTATIONS,
    IDENTIFIERS,
    LOWER_BOUNDS,
    MANY,
    NAMED,
    ONE,
    REFERENCES,
    UPPER_BOUNDS,
)

Flat = dict[str, Any]
MAX_DEPTH = 100
"""Of the JSON of one definition."""
STEPS = 100_000
"""Of one comparison: about a fifth of a second."""

ONE_OF = "exactly one of"
"""In an alternative: for each `oneOf` that it comes from, which of its choices it stands for."""
UNKNOWN = "unknown reference"
"""The keyword of a reference that leads nowhere: what it allows may have changed unseen."""
_APART = {"allOf", *REFERENCES, *IDENTIFIERS}


_OF_CONSTANTS = {"type", "const", "enum", "enumNames", "default", ONE_OF}


class TooLarge(Exception):
    """The work would be more than the budget allows."""


class Budget:
    """Counts visited nodes. Shared by several comparisons if one caller pays for all of them."""

    def __init__(self, steps: int = STEPS, parent: "Budget | None" = None) -> None:
        self.left, self._parent = steps, parent

    def spend(self, steps: int = 1) -> None:
        if self._parent is not None:
            self._parent.spend(steps)
        self.left -= steps
        if self.left < 0:
            raise TooLarge

    def same(self, one: Any, other: Any) -> bool:
        """Equal as JSON: true is not 1, and 1 is 1.0."""
        waiting = [(one, other)]
        while waiting:
            self.spend()
            one, other = waiting.pop()
            if isinstance(one, dict) and isinstance(other, dict):
                if one.keys() != other.keys():
                    return False
                waiting += [(part, other[name]) for name, part in one.items()]
            elif isinstance(one, list) and isinstance(other, list):
                if len(one) != len(other):
                    return False
                waiting += zip(one, other, strict=True)
            elif isinstance(one, bool) is not isinstance(other, bool) or one != other:
                return False
        return True

    def text(self, value: Any) -> str:
        """Equal for equal values."""
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        self.spend(1 + len(text) // 64)
        return text

    def require_shallow(self, value: Any) -> None:
        """Raises TooLarge for what is nested deeper than MAX_DEPTH."""
        layer, depth = [value], 0
        while layer:
            depth += 1
            self.spend(len(layer))
            if depth > MAX_DEPTH:
                raise TooLarge
            layer = [part for node in layer for part in children(node) if isinstance(part, dict | list)]


def without_words(schema: Any) -> Any:
    """The schema without texts for people. It must not be deeper than MAX_DEPTH."""
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, part in schema.items():
        if key in ANNOTATIONS:
            continue
        if key in NAMED and isinstance(part, dict):
            kept[key] = {name: without_words(inner) for name, inner in part.items()}
        elif key in MANY and isinstance(part, list):
            kept[key] = [without_words(inner) for inner in part]
        else:
            kept[key] = without_words(part) if key in ONE else part
    return kept


class Document:
    """One schema. What it hands out lives as long as it does, so an id names a place."""

    def __init__(self, root: Any, budget: Budget) -> None:
        self.root, self._budget = root, budget
        self._flat: dict[int, tuple[Any, Flat]] = {}
        self._spread: dict[int, tuple[Any, list[Flat]]] = {}
        self._typed: dict[int, tuple[Any, list[Flat]]] = {}
        self._references = References(root, budget.spend)

    def alternatives(self, schema: Any) -> list[Flat]:
        """Each choice of anyOf and oneOf, merged with the keywords beside them; none for a schema that accepts
        nothing."""
        known = self._spread.get(id(schema))
        if known is None:
            known = self._spread[id(schema)] = schema, self._alternatives(schema)
        return known[1]

    def _alternatives(self, schema: Any) -> list[Flat]:
        flat = self.flat(schema)
        keyword = next((word for word in ("anyOf", "oneOf") if isinstance(flat.get(word), list) and flat[word]), None)
        if keyword is None:
            return [] if flat.get("not") == {} else [flat]
        rest = {key: value for key, value in flat.items() if key != keyword}
        joined = [{"allOf": [rest, branch]} if rest else branch for branch in flat[keyword]]
        found: list[Flat] = []
        for number, branch in enumerate(joined):
            more = self.alternatives(branch)
            # With choices that refer to choices, each level can double the alternatives.
            self._budget.spend(1 + len(more))
            if keyword == "oneOf":
                chosen = {id(schema): frozenset({number})}
                more = [{**one, ONE_OF: {**one.get(ONE_OF, {}), **chosen}} for one in more]
            found += more
        return found

    def by_type(self, schema: Any) -> list[Flat]:
        """The alternatives, with one type each where they name their types, and all constants of a type as one."""
        known = self._typed.get(id(schema))
        if known is None:
            known = self._typed[id(schema)] = schema, self._by_type(schema)
        return known[1]

    def _by_type(self, schema: Any) -> list[Flat]:
        found: list[Flat] = []
        constants: list[Flat] = []
        for flat in self.alternatives(schema):
            types = flat.get("type")
            if flat.keys() <= _OF_CONSTANTS and (types == "null" or values_of(flat) is not None):
                constants.append(flat)
            elif isinstance(types, list) and len(types) > 1:
                self._budget.spend(len(types))
                found += [{**flat, "type": one} for one in types]
            else:
                found.append(flat)
        return [*found, *self._of_constants(constants)]

    def _of_constants(self, flats: list[Flat]) -> list[Flat]:
        """Servers write the same options as one `enum` or as a choice of `const`. Constants in two choices of a `oneOf`
        are left as they are."""
        having: dict[str, list[Flat]] = {}
        for flat in flats:
            for value in _constants(flat) if ONE_OF in flat else []:
                having.setdefault(self._budget.text(value), []).append(flat)
        clashing: set[int] = set()
        for among in having.values():
            self._budget.spend(len(among) ** 2 // 8)
            clashing |= {id(one) for one, other in permutations(among, 2) if rivals(one, other)}
        joined: dict[str, Flat] = {}
        for flat in flats:
            for value in [] if id(flat) in clashing else _constants(flat):
                kind = type_name(value)
                of_kind = joined.setdefault(kind, {**flat, "type": kind, "enum": []})
                of_kind.pop("const", None)
                of_kind["enum"].append(value)
                one, other = of_kind.get(ONE_OF, {}), flat.get(ONE_OF, {})
                of_kind[ONE_OF] = {
                    choice: one.get(choice, frozenset()) | other.get(choice, frozenset())
                    for choice in one.keys() | other.keys()
                }
        if "null" in joined:
            del joined["null"]["enum"]
        return [*(flat for flat in flats if id(flat) in clashing), *joined.values()]

    def flat(self, schema: Any, chain: int = 0) -> Flat:
        known = self._flat.get(id(schema))
        if known is None:
            known = self._flat[id(schema)] = schema, self._flatten(schema, chain)
        return known[1]

    def _flatten(self, schema: Any, chain: int) -> Flat:
        if chain > MAX_CHAIN:
            raise TooLarge
        if not isinstance(schema, dict):  # something other than a schema says nothing
            return {"not": {}} if schema is False else {}
        self._budget.spend(1 + len(schema))
        flat = {key: value for key, value in schema.items() if key not in _APART and key not in ANNOTATIONS}
        parts = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
        for keyword in REFERENCES:
            if keyword in schema:
                try:
                    parts.append(self._references.target(schema[keyword], schema, dynamic=keyword != "$ref"))
                except Unresolvable as problem:
                    flat[keyword if problem.foreign else UNKNOWN] = schema[keyword]
        if len(parts) == 1 and not flat:
            return self.flat(parts[0], chain + 1)  # the same object: this is how recursion is recognised
        for part in parts:
            flat = self._merge(flat, self.flat(part, chain + 1))
        return flat

    def _merge(self, one: Flat, other: Flat) -> Flat:
        self._budget.spend(1 + len(other))
        merged = dict(one)
        for key, value in other.items():
            if key not in merged:
                merged[key] = value
            elif not self._budget.same(merged[key], value) or (
                isinstance(value, dict | list) and self._references.same_text_may_differ()
            ):
                _join(merged, key, value)
        return merged


def values_of(flat: Flat) -> list[Any] | None:
    """None: any value."""
    values = flat.get("enum")
    if "const" not in flat:
        return values if isinstance(values, list) else None
    only = flat["const"]
    return [only] if not isinstance(values, list) or any(same(only, value) for value in values) else []


def _constants(flat: Flat) -> list[Any]:
    """The constants of a flat that has nothing else."""
    values = values_of(flat)
    types = _listed(flat["type"]) if "type" in flat else None
    found = [None] if values is None else values
    return [value for value in found if types is None or any(is_type(value, str(kind)) for kind in types)]


def rivals(one: Flat, other: Flat) -> bool:
    """Whether a `oneOf` refuses a value that both accept."""
    mine, others = one.get(ONE_OF, {}), other.get(ONE_OF, {})
    return any(len(mine[choice] | others[choice]) > 1 for choice in mine.keys() & others.keys())


def _join(merged: Flat, key: str, value: Any) -> None:
    """Both hold: `merged[key]` and `value`, which differ."""
    old = merged[key]
    if key in {"properties", "patternProperties"} and isinstance(old, dict) and isinstance(value, dict):
        both = {name: {"allOf": [old[name], value[name]]} for name in old.keys() & value.keys()}
        merged[key] = {**old, **value, **both}
    elif key == "required" and isinstance(old, list) and isinstance(value, list):
        merged[key] = [*old, *value]
    elif key == "type":
        one, other = _listed(old), _listed(value)
        merged[key] = [kind for kind in one if kind in other]
        mixed = ("integer" in one and "number" in other) or ("number" in one and "integer" in other)
        if mixed and "integer" not in merged[key]:
            merged[key].append("integer")
    elif key in LOWER_BOUNDS | UPPER_BOUNDS and _is_number(old) and _is_number(value):
        merged[key] = max(old, value) if key in LOWER_BOUNDS else min(old, value)
    elif key in {"items", "additionalProperties"}:
        merged[key] = {"allOf": [old, value]} if False not in (old, value) else False
    elif key not in {"default", "format"}:
        merged[f"allOf {key}"] = [*_listed(merged.get(f"allOf {key}", [])), value]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

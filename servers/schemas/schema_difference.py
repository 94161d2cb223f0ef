"""In what two JSON Schemas differ, place by place. Plain values only; ends for recursive schemas, and within a budget."""

from collections.abc import Iterator
from typing import Any

from servers.schemas.schema_bounds import (
    SHOWN,
    Effect,
    Finding,
    bound_changes,
    default_change,
    opaque_changes,
    shown,
    type_change,
    types_of,
    value_changes,
)
from servers.schemas.schema_reading import Budget, Document, Flat, TooLarge
from servers.schemas.shapes import only_value

MAX_LEVELS = 60
_LOST = {Effect.LESS, Effect.OTHER}
_GAINED = {Effect.MORE, Effect.OTHER}


def differences(before: Any, after: Any, budget: Budget) -> list[Finding]:
    """Raises TooLarge when the budget does not suffice; then nothing is known."""
    budget.require_shallow(before)
    budget.require_shallow(after)
    return list(_Comparison(Document(before, budget), Document(after, budget), budget).of(before, after, 0))


class _Comparison:
    def __init__(self, before: Document, after: Document, budget: Budget) -> None:
        self._before, self._after, self._budget = before, after, budget
        #: pairs of places that are being compared: met again below themselves, they differ in nothing more
        self._under_way: set[tuple[int, int]] = set()
        self._known: dict[tuple[int, int], tuple[Finding, ...]] = {}

    def of(self, before: Any, after: Any, level: int) -> tuple[Finding, ...]:
        if level > MAX_LEVELS:
            raise TooLarge
        one, other = self._before.alternatives(before), self._after.alternatives(after)
        if len(one) == len(other) == 1:
            return self._pair(one[0], other[0], level)
        return tuple(self._choices(self._before.by_type(before), self._after.by_type(after), level))

    # --- choices -----------------------------------------------------------------------------------------------------
    def _choices(self, one: list[Flat], other: list[Flat], level: int) -> Iterator[Finding]:
        """A choice is lost when no new one takes all that it took."""
        lost = [flat for flat in one if not any(self._is_free(flat, new, _LOST, level) for new in other)]
        gained = [new for new in other if not any(self._is_free(flat, new, _GAINED, level) for flat in one)]
        for flat in lost:
            like = next((new for new in other if _alike(flat, new)), None)
            if like is None:
                yield Finding(f"no longer accepts {_kind(flat)}", Effect.LESS)
            else:
                yield from self._pair(flat, like, level)
                gained = [new for new in gained if new is not like]
        for new in gained:
            like = next((flat for flat in one if _alike(flat, new)), None)
            if like is None:
                yield Finding(f"also accepts {_kind(new)}", Effect.MORE)
            else:
                yield from self._pair(like, new, level)

    def _is_free(self, before: Flat, after: Flat, of: set[Effect], level: int) -> bool:
        return not any(finding.effect in of for finding in self._pair(before, after, level))

    # --- one pair ----------------------------------------------------------------------------------------------------
    def _pair(self, before: Flat, after: Flat, level: int) -> tuple[Finding, ...]:
        key = id(before), id(after)
        self._budget.spend()
        if key in self._under_way:
            return ()
        if key not in self._known:
            self._under_way.add(key)
            try:
                found = tuple(self._findings(before, after, level + 1))
            finally:
                self._under_way.discard(key)
            self._known[key] = found
        self._budget.spend(len(self._known[key]))
        return self._known[key]

    def _findings(self, before: Flat, after: Flat, level: int) -> Iterator[Finding]:
        changed = type_change(before, after)
        if changed is not None:
            yield changed
            if _apart(before, after):
                return
        yield from value_changes(before, after, self._budget)
        yield from bound_changes(before, after)
        yield from opaque_changes(before, after, self._budget)
        yield from self._properties(before, after, level)
        yield from self._items(before, after, level)
        if (default := default_change(before, after, self._budget)) is not None:
            yield default

    def _properties(self, before: Flat, after: Flat, level: int) -> Iterator[Finding]:
        one, other = _named(before, "properties"), _named(after, "properties")
        self._budget.spend(len(one) + len(other))
        needed, needs = _names(before), _names(after)
        for name in sorted(one.keys() - other.keys()):
            yield Finding("was removed", Effect.OTHER, _name(name))
        for name in sorted(one.keys() & other.keys()):
            yield from _below(_name(name), self.of(one[name], other[name], level))
        for name in sorted(other.keys() - one.keys()):
            must = name in needs - needed
            words, effect = ("was added and is required", Effect.LESS) if must else ("was added", Effect.SAME)
            yield Finding(words, effect, _name(name))
        for name in sorted((needs - needed) - (other.keys() - one.keys())):
            yield Finding("is now required", Effect.LESS, _name(name))
        for name in sorted((needed - needs) - (one.keys() - other.keys())):
            yield Finding("is no longer required", Effect.MORE, _name(name))
        yield from self._further(before, after, level)
        yield from self._patterns(before, after, level)

    def _further(self, before: Flat, after: Flat, level: int) -> Iterator[Finding]:
        """Properties that the schema does not name."""
        one, other = before.get("additionalProperties", True), after.get("additionalProperties", True)
        if one is False and other is False:
            return
        if other is False:
            yield Finding("no longer accepts properties that it does not list", Effect.LESS)
        elif one is False:
            yield Finding("accepts properties that it does not list", Effect.SAME)
        else:
            yield from _below("*", self.of(one, other, level))

    def _patterns(self, before: Flat, after: Flat, level: int) -> Iterator[Finding]:
        one, other = _named(before, "patternProperties"), _named(after, "patternProperties")
        for pattern in sorted(one.keys() & other.keys()):
            yield from _below(f"/{_name(pattern)}/", self.of(one[pattern], other[pattern], level))
        for pattern in sorted(one.keys() ^ other.keys()):
            words = "was removed" if pattern in one else "was added"
            yield Finding(words, Effect.OTHER, f"/{_name(pattern)}/")

    def _items(self, before: Flat, after: Flat, level: int) -> Iterator[Finding]:
        (one, rest), (other, others) = _tuple(before), _tuple(after)
        for index in range(max(len(one), len(other))):
            pair = one[index] if index < len(one) else rest, other[index] if index < len(other) else others
            yield from _below(f"[{index}]", self.of(*pair, level))
        yield from _below("[]", self.of(rest, others, level))


def _tuple(flat: Flat) -> tuple[list[Any], Any]:
    """(schemas of the first items, schema of the others), in the words of any draft."""
    items = flat.get("items", True)
    if isinstance(items, list):
        return items, flat.get("additionalItems", True)
    first = flat.get("prefixItems")
    return (first if isinstance(first, list) else []), items


def _below(name: str, findings: tuple[Finding, ...]) -> Iterator[Finding]:
    return (finding.under(name) for finding in findings)


def _named(flat: Flat, keyword: str) -> dict[str, Any]:
    part = flat.get(keyword)
    return part if isinstance(part, dict) else {}


def _names(flat: Flat) -> set[str]:
    required = flat.get("required")
    return {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()


def _name(name: str) -> str:
    return shown(name)


def _apart(before: Flat, after: Flat) -> bool:
    one, other = types_of(before), types_of(after)
    if one is None or other is None:
        return False
    numbers = {"integer", "number"}
    return not one & other and not (one & numbers and other & numbers)


def _alike(before: Flat, after: Flat) -> bool:
    """Of one type, and of one constant where constants distinguish them."""
    return types_of(before) == types_of(after) and _marks(before) == _marks(after)


def _marks(flat: Flat) -> dict[str, str]:
    return {
        name: repr(only[0])
        for name, part in _named(flat, "properties").items()
        if (only := only_value(part)) and isinstance(only[0], str | int)
    }


def _kind(flat: Flat) -> str:
    marks = ", ".join(f"{name} {value}" for name, value in _marks(flat).items())
    types = types_of(flat)
    word = "any value" if types is None else " or ".join(sorted(types)) or "nothing"
    return f"{word} with {marks}"[:SHOWN] if marks else word[:SHOWN]

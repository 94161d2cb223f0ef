"""The differences between two JSON Schemas, place by place. Plain values only; terminates for recursive schemas, and
stays within a budget."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from servers.schemas.schema_bounds import (
    OPAQUE,
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
from servers.schemas.schema_reading import ONE_OF, Budget, Document, Flat, TooLarge, rivals, values_of
from servers.schemas.shapes import only_value
from servers.schemas.vocabulary import REFERENCES

MAX_LEVELS = 60
_Pairs = set[tuple[int, int]]
_LOST = {Effect.LESS, Effect.OTHER}
_GAINED = {Effect.MORE, Effect.OTHER}


def differences(before: Any, after: Any, budget: Budget) -> list[Finding]:
    """Raises TooLarge if the budget is exhausted; then nothing is known."""
    budget.require_shallow(before)
    budget.require_shallow(after)
    return list(_Comparison(Document(before, budget), Document(after, budget), budget).of(before, after, 0))


class _Comparison:
    def __init__(self, before: Document, after: Document, budget: Budget) -> None:
        self._before, self._after, self._budget = before, after, budget
        #: pairs of places that are being compared: if one occurs again inside itself, it adds no difference
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
        """A choice is lost if no new choice accepts everything that it accepted."""
        lost = [flat for flat in one if not any(self._is_free(flat, new, _LOST, level) for new in other)]
        gained = [new for new in other if not any(self._is_free(flat, new, _GAINED, level) for flat in one)]
        yield from self._contests(one, other, level)
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

    def _contests(self, one: list[Flat], other: list[Flat], level: int) -> Iterator[Finding]:
        """Findings about values that two choices of a `oneOf` accept, which are therefore refused."""
        was, now = self._contested(one), self._contested(other)
        if was or now:
            of_new = {id(new): [id(flat) for flat in one if self._is_free(flat, new, _GAINED, level)] for new in other}
            of_old = {id(flat): [id(new) for new in other if self._is_free(flat, new, _LOST, level)] for flat in one}
            if not self._covered(now, was, of_new) or _contested_only(of_old, was, now):
                yield Finding("must match exactly one of its choices, and these overlap", Effect.LESS)
            if not self._covered(was, now, of_old) or _contested_only(of_new, now, was):
                yield Finding("may match several of its choices", Effect.MORE)

    def _contested(self, flats: list[Flat]) -> _Pairs:
        """Pairs, by their ids, of choices of one `oneOf` that may accept the same value."""
        chosen = [_Choice.of(flat, self._budget) for flat in flats if ONE_OF in flat]
        self._budget.spend(len(chosen) * sum(choice.size for choice in chosen) // 8)
        return {
            (id(one.flat), id(other.flat))
            for one, other in permutations(chosen, 2)
            if rivals(one.flat, other.flat) and not one.excludes(other)
        }

    def _covered(self, some: _Pairs, by: _Pairs, larger: dict[int, list[int]]) -> bool:
        """Whether for each pair, some pair of `by` accepts everything that it accepts."""
        for one, other in some:
            self._budget.spend(1 + len(larger[one]) * len(larger[other]) // 8)
            if by.isdisjoint(product(larger[one], larger[other])):
                return False
        return True

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
        yield from self._conditions(before, after, level)
        yield from self._properties(before, after, level)
        yield from self._items(before, after, level)
        if (default := default_change(before, after, self._budget)) is not None:
            yield default

    def _conditions(self, before: Flat, after: Flat, level: int) -> Iterator[Finding]:
        """Conditions that are written alike but contain a reference to something else."""
        for keyword in sorted(before.keys() & after.keys()):
            if (keyword in OPAQUE or keyword.startswith("allOf ")) and keyword not in REFERENCES:
                one, other = before[keyword], after[keyword]
                if (
                    isinstance(one, dict | list)
                    and self._budget.same(one, other)
                    and self._lead_apart(one, other, level)
                ):
                    yield Finding(f"has a different condition {keyword}", Effect.OTHER)

    def _lead_apart(self, before: Any, after: Any, level: int) -> bool:
        """Whether a reference in two equal parts of schemas leads to different things."""
        waiting = [(before, after)]
        while waiting:
            self._budget.spend()
            one, other = waiting.pop()
            if isinstance(one, list):
                waiting += zip(one, other, strict=True)
            elif isinstance(one, dict):
                if not one.keys().isdisjoint(REFERENCES) and self.of(one, other, level + 1):
                    return True
                waiting += [(part, other[name]) for name, part in one.items()]
        return False

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
    """(schemas of the first items, schema of the others), with the keywords of any draft."""
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


@dataclass(frozen=True)
class _Choice:
    """What distinguishes one choice of a `oneOf` from another."""

    flat: Flat
    values: frozenset[str] | None
    marks: dict[str, str]
    required: set[str]
    only: frozenset[str] | None
    """The names of all its properties; None if it may have others."""

    @classmethod
    def of(cls, flat: Flat, budget: Budget) -> "_Choice":
        values, named = values_of(flat), _named(flat, "properties")
        budget.spend(1 + len(named))
        closed = flat.get("additionalProperties") is False and "patternProperties" not in flat
        return cls(
            flat,
            None if values is None else frozenset(budget.text(value) for value in values),
            _marks(flat),
            _names(flat),
            frozenset(named) if closed else None,
        )

    @property
    def size(self) -> int:
        return 1 + len(self.values or ()) + len(self.marks) + len(self.required)

    def excludes(self, other: "_Choice") -> bool:
        """Whether no value fits both, as far as types, constants and names show. A property with one constant in each
        choice is assumed to be present."""
        if _apart(self.flat, other.flat):
            return True
        if self.values is not None and other.values is not None:
            return self.values.isdisjoint(other.values)
        if any(mark != other.marks.get(name, mark) for name, mark in self.marks.items()):
            return True
        return _lacks(self, other.required) or _lacks(other, self.required)


def _lacks(choice: _Choice, names: set[str]) -> bool:
    return choice.only is not None and not names <= choice.only


def _contested_only(larger: dict[int, list[int]], own: _Pairs, others: _Pairs) -> bool:
    """Whether something that is in none of its own pairs is accepted only by members of the other side's pairs."""
    mine, theirs = {one for one, _ in own}, {one for one, _ in others}
    return any(found and theirs.issuperset(found) for one, found in larger.items() if one not in mine)


def _alike(before: Flat, after: Flat) -> bool:
    """Whether they have the same type, and the same constants where constants distinguish them."""
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

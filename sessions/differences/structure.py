"""Compare two JSON values by structure: which paths were added, removed or changed.

Values are compared as JSON writes them: 1, 1.0 and true are three values. Items of lists are aligned, so that an item
inserted at the front is one addition, not a change of all that follow.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from sessions.differences.alignment import Budget, TooDifferent, blocks, common
from sessions.differences.text import Piece, pieces, shortened

MOST_CHANGES = 300
MOST_DEPTH = 60
VALUE_CHARS = 300
PATH_CHARS = 300
KEY_CHARS = 60
Json = Any
Path = tuple[str, ...]


@dataclass(frozen=True)
class JsonChange:
    """`kind`: added, removed or changed. A side that lacks the path is None."""

    kind: str
    path: str
    old: Piece | None = None
    new: Piece | None = None


@dataclass(frozen=True)
class JsonDifference:
    changes: tuple[JsonChange, ...]
    hidden: bool = False
    """There are more changes than are listed."""

    def count(self, kind: str) -> int:
        return sum(change.kind == kind for change in self.changes)

    @property
    def added(self) -> int:
        return self.count("added")

    @property
    def removed(self) -> int:
        return self.count("removed")

    @property
    def changed(self) -> int:
        return self.count("changed")


class TooDeep(ValueError):
    """The value is nested more deeply than a page should follow."""


def compare_json(old: Json, new: Json, budget: Budget, values: Budget) -> JsonDifference:
    """`values`: how many values may be examined in total. Raises TooDeep, and TooDifferent if there are more values."""
    names = _Names(values)
    names.of(old)
    names.of(new)
    walker = _Walker(names, budget)
    found = list(islice(walker.walk((), old, new), MOST_CHANGES + 1))
    return JsonDifference(tuple(found[:MOST_CHANGES]), len(found) > MOST_CHANGES)


class _Names:
    """A number for each distinct value, so that two values are equal if and only if their numbers are.

    Keyed by text, never by number: an attacker can choose integers whose Python hashes collide.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._numbers: dict[Any, int] = {}
        self._containers: dict[int, int] = {}

    def of(self, value: Json, depth: int = 0) -> int:
        if not isinstance(value, dict | list):
            return self._number(json.dumps(value))
        if id(value) not in self._containers:
            if depth > MOST_DEPTH:
                raise TooDeep
            self._containers[id(value)] = self._number(self._key(value, depth + 1))
        return self._containers[id(value)]

    def _key(self, value: Json, depth: int) -> Any:
        if isinstance(value, list):
            return ("[", *(self.of(item, depth) for item in value))
        return ("{", *((name, self.of(value[name], depth)) for name in sorted(value)))

    def _number(self, key: Any) -> int:
        self._budget.take(1)
        return self._numbers.setdefault(key, len(self._numbers))


class _Walker:
    def __init__(self, names: _Names, budget: Budget) -> None:
        self._names, self._budget = names, budget

    def walk(self, path: Path, old: Json, new: Json) -> Iterator[JsonChange]:
        if self._names.of(old) == self._names.of(new):
            return
        if isinstance(old, dict) and isinstance(new, dict):
            yield from self._members(path, old, new)
        elif isinstance(old, list) and isinstance(new, list):
            yield from self._items(path, old, new)
        else:
            yield JsonChange("changed", _words(path), *pieces_of(old, new))

    def _members(self, path: Path, old: dict[str, Json], new: dict[str, Json]) -> Iterator[JsonChange]:
        for name in [*old, *(name for name in new if name not in old)]:
            below = (*path, _member(name))
            if name not in new:
                yield _removed(below, old[name])
            elif name not in old:
                yield _added(below, new[name])
            else:
                yield from self.walk(below, old[name], new[name])

    def _items(self, path: Path, old: list[Json], new: list[Json]) -> Iterator[JsonChange]:
        for left, right in self._blocks(old, new):
            for before, after in zip_longest(left, right):
                if after is None:
                    yield _removed((*path, f"[{before}]"), old[before])
                elif before is None:
                    yield _added((*path, f"[{after}]"), new[after])
                else:
                    yield from self.walk((*path, f"[{after}]"), old[before], new[after])

    def _blocks(self, old: list[Json], new: list[Json]) -> list[tuple[range, range]]:
        """If the budget is spent, compare item by item at the same position."""
        try:
            pairs = common([self._names.of(item) for item in old], [self._names.of(item) for item in new], self._budget)
        except TooDifferent:
            return [(range(len(old)), range(len(new)))]
        return list(blocks(pairs, len(old), len(new)))


def _added(path: Path, value: Json) -> JsonChange:
    return JsonChange("added", _words(path), new=Piece(_preview(value)))


def _removed(path: Path, value: Json) -> JsonChange:
    return JsonChange("removed", _words(path), old=Piece(_preview(value)))


def pieces_of(old: Json, new: Json) -> tuple[Piece, Piece]:
    """For two texts, mark what differs inside them; otherwise show both values."""
    if isinstance(old, str) and isinstance(new, str):
        return pieces(json.dumps(old, ensure_ascii=False), json.dumps(new, ensure_ascii=False))
    return Piece(_preview(old)), Piece(_preview(new))


def _preview(value: Json) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), VALUE_CHARS)


# --- paths -----------------------------------------------------------------------------------------------------------
def _member(name: str) -> str:
    """A plain name unchanged, anything else quoted, so that a dot in a key is not read as a step."""
    plain = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() and len(name) <= KEY_CHARS
    return f".{name}" if plain else f"[{json.dumps(shortened(name, KEY_CHARS), ensure_ascii=False)}]"


def _words(path: Path) -> str:
    """`$` is the whole value. The end of a long path says more than its beginning."""
    text = "$" + "".join(path)
    return text if len(text) <= PATH_CHARS else f"$…{text[-PATH_CHARS:]}"

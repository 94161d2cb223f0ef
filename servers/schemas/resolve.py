"""One schema document: follows local references, merges allOf, decides conditions; never fetches anything."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from servers.schemas.merge import Flat, merge
from servers.schemas.references import MAX_CHAIN, References, Unresolvable
from servers.schemas.shapes import Schema, Unsupported, require_sane
from servers.schemas.vocabulary import IDENTIFIERS, REFERENCES

MAX_MERGES = 6_000
MAX_CONDITIONS = 32
MAX_LOOKS = 100_000
"""At most this many parts of the document are visited to find the targets of references."""

_STRUCTURE = {"allOf", "if", "then", "else", "dependentSchemas", "dependencies", "$comment", *REFERENCES, *IDENTIFIERS}
_CONSTRAINTS = {"required", "not", "dependentRequired", "minProperties", "maxProperties", "minLength", "maxLength"}
_CONSTRAINTS |= {"minimum", "maximum", "minItems", "maxItems", "pattern", "title", "description", "$comment"}


@dataclass(frozen=True)
class Condition:
    """`if`/`then`/`else`, or a dependency written as one."""

    test: Schema
    then: Schema | None
    otherwise: Schema | None


Decide = Callable[[Condition], bool]


class Document:
    """A root schema with its work budget. Every method raises Unsupported instead of guessing."""

    def __init__(self, root: Schema) -> None:
        self.root = root
        self.steps = 0
        """The steps that quick checks of values have used so far (see match)."""
        self._merges = 0
        self._looks = 0
        self._references = References(root, self._look)
        # Schemas are kept with their result, so an id is not reused while it is a key here.
        self._flat: dict[int, tuple[Schema, Flat, tuple[Condition, ...]]] = {}

    def effective(self, schema: Schema, decide: Decide) -> Flat:
        """The keywords that apply at one location, in order, once every condition has been decided."""
        flat, found = self.flatten(schema)
        conditions = list(found)
        for number, condition in enumerate(conditions):
            if number >= MAX_CONDITIONS:
                raise Unsupported("The schema has too many conditions here.")
            picked = condition.then if decide(condition) else condition.otherwise
            if picked is not None:
                more, nested = self.flatten(picked)
                flat = merge(flat, more)
                conditions.extend(nested)  # the loop continues with these
        return flat

    def flatten(self, schema: Schema, chain: int = 0) -> tuple[Flat, tuple[Condition, ...]]:
        known = self._flat.get(id(schema))
        if known is None:
            known = (schema, *self._flatten(schema, chain))
            self._flat[id(schema)] = known
        return known[1], known[2]

    def _flatten(self, schema: Schema, chain: int) -> tuple[Flat, tuple[Condition, ...]]:
        if isinstance(schema, bool):
            return ({} if schema else {"not": {}}), ()
        if not isinstance(schema, dict):
            raise Unsupported("The schema is not valid here: a schema must be an object.")
        require_sane(schema)
        self._merges += 1 + len(schema.get("properties", ())) // 20
        if chain > MAX_CHAIN:
            raise Unsupported(f"References follow each other more than {MAX_CHAIN} times here.")
        if self._merges > MAX_MERGES:
            raise Unsupported("The schema is too large to become a form from here on.")
        flat = {key: value for key, value in schema.items() if key not in _STRUCTURE}
        for key in ("anyOf", "oneOf"):  # [{required: [a]}, {required: [b]}] requires a check, not a different form
            if all(isinstance(branch, dict) and branch.keys() <= _CONSTRAINTS for branch in flat.get(key, [None])):
                del flat[key]
        conditions = list(_conditions(schema))
        for part in self._parts(schema):
            more, nested = self.flatten(part, chain + 1)
            flat = merge(flat, more)
            conditions.extend(nested)
        return flat, tuple(conditions)

    def _parts(self, schema: dict[str, Any]) -> Iterator[Schema]:
        for keyword in REFERENCES:
            if keyword in schema:
                try:
                    yield self._references.target(schema[keyword], schema, dynamic=keyword != "$ref")
                except Unresolvable as exc:
                    raise Unsupported(str(exc)) from exc
        yield from schema.get("allOf", ())

    def _look(self) -> None:
        self._looks += 1
        if self._looks > MAX_LOOKS:
            raise Unsupported("The schema is too large to become a form from here on.")


def _conditions(schema: dict[str, Any]) -> Iterator[Condition]:
    if "if" in schema and ("then" in schema or "else" in schema):
        yield Condition(schema["if"], schema.get("then"), schema.get("else"))
    for keyword in ("dependentSchemas", "dependencies"):
        for key, then in schema.get(keyword, {}).items():
            if isinstance(then, dict):
                yield Condition({"type": "object", "required": [key]}, then, None)

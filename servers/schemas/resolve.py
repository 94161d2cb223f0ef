"""One schema document: local references followed, allOf merged, conditions decided; nothing is ever fetched."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from servers.schemas.merge import Flat, merge
from servers.schemas.pointer import segments, unescape
from servers.schemas.shapes import Schema, Unsupported, require_sane
from servers.schemas.values import children

MAX_CHAIN = 16
"""Longest chain of $ref and allOf that lead to one value."""
MAX_MERGES = 6_000
MAX_CONDITIONS = 32
MAX_ANCHOR_WALK = 20_000

_STRUCTURE = {"$ref", "$dynamicRef", "allOf", "if", "then", "else", "dependentSchemas", "dependencies", "$defs"}
_STRUCTURE |= {"definitions", "$id", "$schema", "$anchor", "$dynamicAnchor", "$comment"}
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
        """What quick looks at values have cost so far (see match)."""
        self._merges = 0
        self._anchors: dict[str, Schema] | None = None
        # Schemas are kept beside their result, so an id is never used again while it is a key here.
        self._flat: dict[int, tuple[Schema, Flat, tuple[Condition, ...]]] = {}

    def effective(self, schema: Schema, decide: Decide) -> Flat:
        """The keywords that apply at one place, in order, once every condition has been decided."""
        flat, found = self.flatten(schema)
        conditions = list(found)
        for number, condition in enumerate(conditions):
            if number >= MAX_CONDITIONS:
                raise Unsupported("The schema has too many conditions here.")
            picked = condition.then if decide(condition) else condition.otherwise
            if picked is not None:
                more, nested = self.flatten(picked)
                flat = merge(flat, more)
                conditions.extend(nested)  # the loop goes on through these
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
        self._spend(chain, len(schema.get("properties", ())))
        flat = {key: value for key, value in schema.items() if key not in _STRUCTURE}
        self._drop_constraint_unions(flat)
        conditions = list(_conditions(schema))
        for part in self._parts(schema):
            more, nested = self.flatten(part, chain + 1)
            flat = merge(flat, more)
            conditions.extend(nested)
        return flat, tuple(conditions)

    def _spend(self, chain: int, width: int) -> None:
        self._merges += 1 + width // 20
        if chain > MAX_CHAIN:
            raise Unsupported(f"References follow each other more than {MAX_CHAIN} times here.")
        if self._merges > MAX_MERGES:
            raise Unsupported("The schema is too large to become a form from here on.")

    def _parts(self, schema: dict[str, Any]) -> Iterator[Schema]:
        for key in ("$ref", "$dynamicRef"):
            if key in schema:
                yield self.lookup(schema[key])
        yield from schema.get("allOf", ())

    def _drop_constraint_unions(self, flat: Flat) -> None:
        """`anyOf: [{required: [a]}, {required: [b]}]` asks for a check, not for another form."""
        for key in ("anyOf", "oneOf"):
            if all(isinstance(branch, dict) and branch.keys() <= _CONSTRAINTS for branch in flat.get(key, [None])):
                del flat[key]

    def lookup(self, ref: object) -> Schema:
        """The target of a local reference."""
        if not isinstance(ref, str):
            raise Unsupported("The schema is not valid here: “$ref” must be text.")
        base, _, fragment = ref.partition("#")
        if base and base != self._base():
            raise Unsupported("This part refers to another document, which is never fetched.")
        if fragment.startswith("/"):
            return self._walk(unquote(fragment))
        return self._anchor(fragment) if fragment else self.root

    def _base(self) -> str:
        base = self.root.get("$id") if isinstance(self.root, dict) else None
        return base.rstrip("#") if isinstance(base, str) else ""

    def _walk(self, path: str) -> Schema:
        target: object = self.root
        for segment in segments(path):
            key = unescape(segment)
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(target):
                target = target[int(key[:9])]
            else:
                raise Unsupported("This part refers to a definition that the schema does not have.")
        return target

    def _anchor(self, anchor: str) -> Schema:
        if self._anchors is None:
            self._anchors = dict(_anchors(self.root))
        if anchor not in self._anchors:
            raise Unsupported("This part refers to a definition that the schema does not have.")
        return self._anchors[anchor]


def _conditions(schema: dict[str, Any]) -> Iterator[Condition]:
    if "if" in schema and ("then" in schema or "else" in schema):
        yield Condition(schema["if"], schema.get("then"), schema.get("else"))
    for keyword in ("dependentSchemas", "dependencies"):
        for key, then in schema.get(keyword, {}).items():
            if isinstance(then, dict):
                yield Condition({"type": "object", "required": [key]}, then, None)


def _anchors(root: Schema) -> Iterator[tuple[str, Schema]]:
    """Names by $anchor, $dynamicAnchor and the draft-07 `"$id": "#name"`; a bounded walk without recursion."""
    waiting, seen = [root], 0
    while waiting and seen < MAX_ANCHOR_WALK:
        seen += 1
        part = waiting.pop()
        if isinstance(part, dict):
            for key in ("$anchor", "$dynamicAnchor", "$id"):
                anchor = part.get(key)
                if isinstance(anchor, str) and anchor and (key != "$id" or anchor.startswith("#")):
                    yield anchor.removeprefix("#"), part
        waiting.extend(child for child in children(part) if isinstance(child, dict | list))

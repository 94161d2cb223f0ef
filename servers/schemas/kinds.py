"""Which control a person gets for a schema: decided once here, for both the form builder and the form reader."""

from dataclasses import dataclass, field
from typing import Any

from servers.json.text import Json
from servers.schemas.labels import branch_label, option_label
from servers.schemas.merge import Flat
from servers.schemas.resolve import Document
from servers.schemas.shapes import Schema, Unsupported, only_value, required_of, types_of
from servers.schemas.values import same

MAX_OPTIONS = 1_000
MAX_CHIPS = 60
MAX_BRANCHES = 100
#: with more options than that, a text field suggests at most this many
MAX_SUGGESTIONS, MAX_SUGGESTED_CHARS = 5_000, 200_000
TOO_MANY_OPTIONS = f"There are more than {MAX_OPTIONS:,} options to choose from here."
NO_OPTION = "The schema allows no value here: its list of options is empty."
_NOT_PLAIN = {"anyOf", "oneOf", "const", "enum", "default"}
_NOT_INHERITED = {"anyOf", "oneOf", "title", "description", "default", "examples"}


@dataclass(frozen=True)
class Option:
    value: Json
    label: str


@dataclass(frozen=True)
class Fixed:
    """One value only: `const` or the type null."""

    value: Json


@dataclass(frozen=True)
class Choice:
    options: tuple[Option, ...]

    def index(self, value: Json) -> int | None:
        return next((i for i, option in enumerate(self.options) if same(option.value, value)), None)


@dataclass(frozen=True)
class Chips:
    """An array of enum values, in option order and each at most once."""

    choice: Choice
    items: Schema


@dataclass(frozen=True)
class Union:
    """`constants`: for each branch that is an object, the properties that have only one possible value."""

    branches: tuple[Schema, ...]
    labels: tuple[str, ...]
    constants: tuple[dict[str, Json], ...]


@dataclass(frozen=True)
class Text:
    pass


@dataclass(frozen=True)
class Number:
    integral: bool


@dataclass(frozen=True)
class Switch:
    pass


@dataclass(frozen=True)
class Array:
    leading: tuple[Schema, ...]
    rest: Schema

    def at(self, index: int) -> Schema:
        return self.leading[index] if index < len(self.leading) else self.rest


@dataclass(frozen=True)
class Object:
    properties: dict[str, Schema]
    required: frozenset[str]
    extra: Schema
    """The schema of a free key's value."""
    offers_keys: bool


@dataclass(frozen=True)
class AnyJson:
    reason: str = field(default="Any JSON value.")


Kind = Fixed | Choice | Chips | Union | Text | Number | Switch | Array | Object | AnyJson


def classify(document: Document, flat: Flat) -> Kind:
    """Raises Unsupported if only JSON text will do."""
    if only := only_value(flat):
        return Fixed(only[0])
    if "enum" in flat and 0 < len(flat["enum"]) <= MAX_OPTIONS:
        return _enum(flat)
    if "enum" in flat and not types_of(flat):
        return AnyJson(TOO_MANY_OPTIONS if flat["enum"] else NO_OPTION)
    branches = _branches(flat)
    if branches is not None:
        return _constants(document, branches) or _union(document, flat, branches)
    types = _types(flat)
    if not types:
        return AnyJson()
    if len(types) > 1:
        shared = {key: value for key, value in flat.items() if key not in _NOT_INHERITED}
        return Union(tuple({**shared, "type": name} for name in types), tuple(types), ({},) * len(types))
    if types == ["array"]:
        return _array(document, flat)
    return _object(flat) if types == ["object"] else _OF_TYPE[types[0]]


def has_many_options(flat: Flat) -> bool:
    """More options than a select may have: the value is typed."""
    options = flat.get("enum")
    return isinstance(options, list) and len(options) > MAX_OPTIONS


def is_leaf(document: Document, kind: Kind, flat_of: Any, nested: bool = False) -> bool:
    """Whether an optional node of this kind can show its controls while it is not sent: no recursion, small."""
    if isinstance(kind, Array | Object):
        return False
    if not isinstance(kind, Union):
        return True
    if nested or len(kind.branches) > 6:
        return False
    return all(_leaf_branch(document, branch, flat_of) for branch in kind.branches)


def _leaf_branch(document: Document, branch: Schema, flat_of: Any) -> bool:
    try:
        return is_leaf(document, classify(document, flat_of(branch)), flat_of, nested=True)
    except Unsupported:
        return True


def _enum(flat: Flat) -> Choice:
    names = flat.get("enumNames")
    names = names if isinstance(names, list) and len(names) == len(flat["enum"]) else [None] * len(flat["enum"])
    mixed = not all(isinstance(value, str) for value in flat["enum"])
    pairs = zip(flat["enum"], names, strict=True)
    return Choice(tuple(Option(value, option_label(value, name, mixed)) for value, name in pairs))


def _branches(flat: Flat) -> list[Schema] | None:
    if "anyOf" in flat and "oneOf" in flat:
        raise Unsupported("Two choices (anyOf and oneOf) apply to this value at once.")
    branches = flat.get("oneOf", flat.get("anyOf"))
    if branches is not None and len(branches) > MAX_BRANCHES:
        raise Unsupported("There are too many forms to choose from here.")
    return branches


def _constants(document: Document, branches: list[Schema]) -> Choice | None:
    """A union of nothing but constants is a select with titles."""
    options: list[Option] = []
    for branch in branches:
        flat, conditions = document.flatten(branch)
        if conditions:
            return None
        if "const" in flat or flat.get("type") == "null":
            value = flat.get("const")
            options.append(Option(value, option_label(value, flat.get("title"), mixed=True)))
        elif flat.get("enum"):
            options.extend(_enum(flat).options)
        else:
            return None
    return Choice(tuple(options)) if len(options) <= MAX_OPTIONS else None


def _union(document: Document, flat: Flat, branches: list[Schema]) -> Kind:
    shared = {key: value for key, value in flat.items() if key not in _NOT_INHERITED}
    schemas = tuple({"allOf": [branch, shared]} if shared else branch for branch in branches)
    labels = [branch_label(document, branch, number) for number, branch in enumerate(branches, 1)]
    distinct = (f"{label} ({number})" if labels.count(label) > 1 else label for number, label in enumerate(labels, 1))
    return Union(schemas, tuple(distinct), tuple(_constants_of(document, branch) for branch in branches))


def _constants_of(document: Document, branch: Schema) -> dict[str, Json]:
    try:
        flat, _ = document.flatten(branch)
    except Unsupported:
        return {}
    if types_of(flat) not in ([], ["object"]) or not flat.keys().isdisjoint(_NOT_PLAIN):
        return {}
    properties = flat.get("properties", {}).items()
    return {key: only[0] for key, sub in properties if (only := only_value(sub))}


_IMPLIED = {
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


_OF_TYPE: dict[str, Kind] = {
    "string": Text(),
    "integer": Number(integral=True),
    "number": Number(integral=False),
    "boolean": Switch(),
    "null": Fixed(None),
}


def _types(flat: Flat) -> list[str]:
    types = types_of(flat)
    if not types:
        # The keywords show what the author meant; a value of another type is edited as JSON.
        types = [name for name, keywords in _IMPLIED.items() if any(key in flat for key in keywords)][:1]
    return [name for name in types if not (name == "integer" and "number" in types)]


def _array(document: Document, flat: Flat) -> Kind:
    items = flat.get("items", True)
    if isinstance(items, list):
        return Array(tuple(items), flat.get("additionalItems", True))
    leading = tuple(flat.get("prefixItems", ()))
    choice = None if leading else _chip_choice(document, items)
    return Chips(choice, items) if choice else Array(leading, items)


def _chip_choice(document: Document, items: Schema) -> Choice | None:
    try:
        flat, conditions = document.flatten(items)
        if conditions or not isinstance(items, dict):
            return None
        if flat.get("enum"):
            choice: Choice | None = _enum(flat)
        else:
            branches = _branches(flat)
            choice = _constants(document, branches) if branches else None
    except Unsupported:
        return None  # the items say so themselves, each beside its own control
    return choice if choice is not None and len(choice.options) <= MAX_CHIPS else None


def _object(flat: Flat) -> Object:
    required = required_of(flat)
    properties = {key: sub for key, sub in flat.get("properties", {}).items() if sub is not False or key in required}
    for key in required:
        properties.setdefault(key, _extra(flat))
    declared = flat.get("additionalProperties")
    offers = bool(flat.get("patternProperties")) or (
        declared is not False if declared is not None else "properties" not in flat
    )
    return Object(properties, frozenset(required), _extra(flat), offers)


def _extra(flat: Flat) -> Schema:
    """One `patternProperties` entry describes all free keys: its expression is never run here."""
    patterns = list(flat.get("patternProperties", {}).values())
    if len(patterns) == 1:
        return patterns[0]
    declared = flat.get("additionalProperties", True)
    return True if patterns or declared is False else declared

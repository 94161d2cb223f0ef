"""Guards against keywords of the wrong type: a server's schema is untrusted."""

from typing import Any

Schema = Any  # dict | bool if valid; anything otherwise


class Unsupported(Exception):
    """This part of the schema cannot become a form; the sentence says why, for the person who edits JSON instead."""


_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies")
_NONEMPTY_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS = ("additionalProperties", "additionalItems", "if", "then", "else")
_TYPES = {"string", "number", "integer", "boolean", "null", "array", "object"}


def require_sane(schema: dict[str, Any]) -> None:
    """Raises Unsupported if a keyword that the form reads has a type that JSON Schema forbids."""
    for key in _MAPS:
        if key in schema and not isinstance(schema[key], dict):
            raise Unsupported(f"The schema is not valid here: “{key}” must be an object.")
    for key in _NONEMPTY_LISTS:
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            raise Unsupported(f"The schema is not valid here: “{key}” must be a list.")
    for key in _SCHEMAS:
        if key in schema and not isinstance(schema[key], dict | bool):
            raise Unsupported(f"The schema is not valid here: “{key}” must be a schema.")
    required = schema.get("required", [])
    are_names = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not are_names and not isinstance(required, bool):
        raise Unsupported("The schema is not valid here: “required” must be a list of names.")
    if "enum" in schema and not isinstance(schema["enum"], list):
        raise Unsupported("The schema is not valid here: “enum” must be a list.")
    if "items" in schema and not isinstance(schema["items"], dict | bool | list):
        raise Unsupported("The schema is not valid here: “items” must be a schema.")
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not types or not all(isinstance(name, str) and name in _TYPES for name in types):
            raise Unsupported("The schema is not valid here: “type” does not name a JSON type.")


def only_value(schema: Any) -> list[Any]:
    """The only value allowed, by `const` or by a one-element `enum` as in draft-04 and OpenAPI 3.0. Otherwise empty."""
    if not isinstance(schema, dict):
        return []
    options = [schema["const"]] if "const" in schema else schema.get("enum")
    return options if isinstance(options, list) and len(options) == 1 else []


def types_of(schema: dict[str, Any]) -> list[str]:
    """The declared types in order; empty if any type is allowed."""
    declared = schema.get("type")
    if declared is None:
        return []
    return list(dict.fromkeys(declared)) if isinstance(declared, list) else [declared]


def required_of(schema: dict[str, Any]) -> list[str]:
    names = schema.get("required")
    return list(names) if isinstance(names, list) else []


def text_of(schema: dict[str, Any], key: str, limit: int) -> str:
    """A text keyword, truncated; "" for anything else that a server put there."""
    value = schema.get(key)
    if not isinstance(value, str):
        return ""
    value = value.strip()
    return value if len(value) <= limit else value[: limit - 1] + "…"


def number_of(schema: dict[str, Any], key: str) -> int | float | None:
    value = schema.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def count_of(schema: dict[str, Any], key: str) -> int | None:
    value = number_of(schema, key)
    return int(value) if value is not None and 0 <= value < 2**53 else None

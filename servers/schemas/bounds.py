"""How large a schema and a value may be before anyone works on them. Counted without recursion."""

from collections.abc import Iterator

from servers.schemas.jsontext import MAX_DEPTH
from servers.schemas.shapes import Schema
from servers.schemas.values import Json, children, depth

MAX_SUBSCHEMAS = 1_000
MAX_SUBSCHEMA_DEPTH = 32
MAX_SCHEMA_DEPTH = 200
MAX_SCHEMA_BYTES = 1 << 20
MAX_VALUE_BYTES = 8 << 20

_ONE = {"items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames"}
_ONE |= {"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
_MANY = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}


def too_large(schema: Schema, value: Json) -> str:
    """Why the pair is refused, as a sentence; "" when it is within bounds."""
    if depth(schema, MAX_SCHEMA_DEPTH) > MAX_SCHEMA_DEPTH:
        return "The schema is nested too deeply."
    if depth(value, MAX_DEPTH) > MAX_DEPTH:
        return f"The value is nested more than {MAX_DEPTH} levels deep."
    return _too_many(schema)


def _too_many(root: Schema) -> str:
    layer, level, count = [root], 0, 0
    while layer:
        level, count = level + 1, count + len(layer)
        if count > MAX_SUBSCHEMAS:
            return f"The schema has more than {MAX_SUBSCHEMAS:,} parts."
        if level > MAX_SUBSCHEMA_DEPTH:
            return f"The schema is nested more than {MAX_SUBSCHEMA_DEPTH} levels deep."
        layer = [part for schema in layer for part in _subschemas(schema)]
    return ""


def _subschemas(schema: Schema) -> Iterator[Schema]:
    if not isinstance(schema, dict):
        return
    for key, part in schema.items():
        if key in _NAMED and isinstance(part, dict):
            yield from (sub for sub in part.values() if isinstance(sub, dict | bool))
        elif key in _MANY and isinstance(part, list):
            yield from (sub for sub in part if isinstance(sub, dict | bool))
        elif key in _ONE and isinstance(part, dict):
            yield part
        elif key not in _NAMED and key not in _DATA:
            yield from (sub for sub in children(part) if isinstance(sub, dict))


_DATA = {"enum", "const", "default", "examples", "required", "type"}

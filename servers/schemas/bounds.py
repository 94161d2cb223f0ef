"""How large a schema and a value may be, checked before any other processing. Counted without recursion."""

from servers.json.text import MAX_DEPTH, Json, depth
from servers.schemas.shapes import Schema
from servers.schemas.vocabulary import subschemas

MAX_SUBSCHEMAS = 1_000
MAX_SUBSCHEMA_DEPTH = 32
MAX_SCHEMA_DEPTH = 200
MAX_SCHEMA_BYTES = 1 << 20


def too_large(schema: Schema, value: Json) -> str:
    """Why the pair is rejected, as a sentence; "" if it is within bounds."""
    if depth(schema, MAX_SCHEMA_DEPTH) > MAX_SCHEMA_DEPTH:
        return f"The schema is nested more than {MAX_SCHEMA_DEPTH} levels deep, which is a fixed limit."
    if depth(value, MAX_DEPTH) > MAX_DEPTH:
        return f"The value is nested more than {MAX_DEPTH} levels deep, which is a fixed limit."
    return _too_many(schema)


def _too_many(root: Schema) -> str:
    layer, level, count = [root], 0, 0
    while layer:
        level, count = level + 1, count + len(layer)
        if count > MAX_SUBSCHEMAS:
            return f"The schema has more than {MAX_SUBSCHEMAS:,} parts, which is a fixed limit."
        if level > MAX_SUBSCHEMA_DEPTH:
            return f"The schema is nested more than {MAX_SUBSCHEMA_DEPTH} levels deep, which is a fixed limit."
        layer = [part for schema in layer for part in subschemas(schema)]
    return ""

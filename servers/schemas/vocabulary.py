"""The keywords of JSON Schema (2020-12, 2019-09, draft-07), grouped by what they contain."""

from collections.abc import Iterator
from typing import Any, Final

from servers.json.text import children

#: one subschema
ONE: Final = frozenset(
    {"items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties", "contentSchema"}
)
#: a list of subschemas
MANY: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
#: subschemas by name
NAMED: Final = frozenset(
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]
)
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
ANCHORS: Final = ("$anchor", "$dynamicAnchor")
#: say nothing about the value themselves
IDENTIFIERS: Final = frozenset(["$schema", "$id", "$defs", "definitions", *ANCHORS])
#: for people: they do not affect validation
ANNOTATIONS: Final = frozenset(["title", "description", "examples", "$comment", "deprecated", "readOnly", "writeOnly"])
LOWER_BOUNDS: Final = frozenset(["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"])
UPPER_BOUNDS: Final = frozenset(["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"])
#: values, not schemas
DATA: Final = frozenset(["enum", "const", "default", "examples", "required", "type"])


def subschemas(schema: Any) -> Iterator[Any]:
    """The direct subschemas, and objects inside unknown keywords, which may be subschemas."""
    if not isinstance(schema, dict):
        return
    for key, part in schema.items():
        if key in NAMED and isinstance(part, dict):
            yield from (sub for sub in part.values() if isinstance(sub, dict | bool))
        elif key in MANY and isinstance(part, list):
            yield from (sub for sub in part if isinstance(sub, dict | bool))
        elif key in ONE and isinstance(part, dict):
            yield part
        elif key not in NAMED and key not in DATA:
            yield from (sub for sub in children(part) if isinstance(sub, dict))

"""The input schema of a tool as forms, checks and comparisons expect it: deviations from JSON Schema whose meaning is
clear are corrected.
"""

from collections.abc import Mapping
from typing import Any, Final

#: keywords that may be null
_VALUES: Final = frozenset({"const", "default"})
_OBJECT: Final = {"type": "object"}


def input_schema_of(tool: Mapping[str, Any]) -> Any:
    """Arguments are always an object, which a schema may omit. Go writes missing lists and maps as null, and authors
    used to draft-3 write `required` next to the type of an argument. Only the schema and those of its arguments are
    corrected, since this is on the path of each call. Returns the schema itself if nothing is odd."""
    schema = tool.get("inputSchema")
    if schema is None:
        return dict(_OBJECT)
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = _without_nulls(schema)
    if "properties" in schema and schema["properties"] is None:
        found["properties"] = {}
    if "type" not in found:
        found = _OBJECT | found
    properties = found.get("properties")
    if isinstance(properties, dict) and any(map(_is_odd, properties.values())):
        found = found | {"properties": {name: _argument(one) for name, one in properties.items()}}
        needed = [name for name, one in properties.items() if isinstance(one, dict) and one.get("required") is True]
        if needed:
            listed = found.get("required")
            found["required"] = list(dict.fromkeys([*(listed if isinstance(listed, list) else []), *needed]))
    return _without_flag(found)


def _is_odd(schema: Any) -> bool:
    return schema is None or (isinstance(schema, dict) and (_is_flagged(schema) or _has_null(schema)))


def _argument(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return {} if schema is None else schema
    return _without_flag(_without_nulls(schema))


def _is_flagged(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("required"), bool)


def _without_flag(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in schema.items() if key != "required"} if _is_flagged(schema) else schema


def _has_null(schema: dict[str, Any]) -> bool:
    return None in schema.values() and any(part is None and key not in _VALUES for key, part in schema.items())


def _without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    if not _has_null(schema):
        return schema
    return {key: part for key, part in schema.items() if part is not None or key in _VALUES}

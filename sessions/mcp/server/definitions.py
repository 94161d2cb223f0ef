"""Definitions as clients accept them. The official clients read a list as one value: a single malformed definition
makes them reject the whole list.

Source: the schema of each revision; `types.ts` of the TypeScript SDK and `types.py` of the Python SDK.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

Check = Callable[[Any], bool]

BAD_SCHEMA: Final = "The input schema does not describe an object. Clients would reject the whole list."


def drop_other_structure(tool: dict[str, Any]) -> bool:
    """Until 2025-11-25, an output schema must be an object schema, like structured content. Drops any other; returns
    whether it did."""
    if "outputSchema" not in tool or _is_schema_of_object(tool["outputSchema"]):
        return False
    del tool["outputSchema"]
    return True


def mended(value: Mapping[str, Any], *, tool: bool) -> dict[str, Any] | None:
    """Correct what has only one possible meaning, and drop optional members that no client can read. None for a tool
    that cannot be corrected."""
    found = {name: member for name, member in value.items() if name not in _MEMBERS or _MEMBERS[name](member)}
    if "annotations" in found:
        found["annotations"] = {
            name: hint for name, hint in found["annotations"].items() if name not in _HINTS or _HINTS[name](hint)
        }
    if not tool:
        return found
    schema = _input_schema(value.get("inputSchema"))
    return None if schema is None else found | {"inputSchema": schema}


def _input_schema(schema: Any) -> dict[str, Any] | None:
    """Arguments are always an object, and a schema may leave this out."""
    if schema is None:
        return {"type": "object"}
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    # Go writes missing lists and maps as null
    found = {"type": "object"} | {
        name: member for name, member in schema.items() if member is not None or name not in ("properties", "required")
    }
    if isinstance(properties := found.get("properties"), dict):
        found["properties"] = {
            name: _BOOLEAN[one] if isinstance(one, bool) else one for name, one in properties.items()
        }
    return found if _has_readable_members(found) else None


#: a schema may be true or false, which clients do not accept as a property's schema
_BOOLEAN: Final[Mapping[bool, dict[str, Any]]] = {True: {}, False: {"not": {}}}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_schema_of_object(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "object"


def _has_readable_members(schema: Any) -> bool:
    """Whether clients can read the members that they look at in any schema."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    return (
        isinstance(properties, dict)
        and all(isinstance(one, dict) for one in properties.values())
        and _is_list_of(_is_text)(schema.get("required", []))
    )


def _is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(check(one) for one in value)


def _is_object_of(required: str, /, **members: Check) -> Check:
    return lambda value: (
        isinstance(value, dict)
        and isinstance(value.get(required), str)
        and all(check(value[name]) for name, check in members.items() if name in value)
    )


#: RFC 3339; Python accepts more
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(_TIME.fullmatch(value) and datetime.fromisoformat(value))
    except ValueError:
        return False


_MEMBERS: Final[Mapping[str, Check]] = {
    "title": _is_text,
    "description": _is_text,
    "mimeType": _is_text,
    "size": _is_whole,
    "icons": _is_list_of(
        _is_object_of("src", mimeType=_is_text, sizes=_is_list_of(_is_text), theme=lambda one: one in ("light", "dark"))
    ),
    "arguments": _is_list_of(_is_object_of("name", title=_is_text, description=_is_text, required=_is_flag)),
    "annotations": _is_object,
    "outputSchema": _has_readable_members,
    "_meta": _is_object,
}
#: members of `annotations`: first those of tools, then those of resources
_HINTS: Final[Mapping[str, Check]] = {
    "title": _is_text,
    "readOnlyHint": _is_flag,
    "destructiveHint": _is_flag,
    "idempotentHint": _is_flag,
    "openWorldHint": _is_flag,
    "audience": _is_list_of(lambda one: one in ("user", "assistant")),
    "priority": lambda one: _is_number(one) and 0 <= one <= 1,
    "lastModified": _is_time,
}

"""The parts of a call that are compared with those of another: its arguments, and each content item of its result."""

import json
from typing import Any

from sessions.calls.results import parsed
from sessions.mcp.core.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL

Parts = list[dict[str, Any]]


def argument_parts(text: str) -> Parts:
    return [{"uri": "Arguments", "mimeType": "application/json", "text": text}]


def result_parts(method: str, text: str) -> Parts:
    """The result in the format of resource contents, named after its parts. If it does not have the form that its
    method requires, which no server guarantees, the whole result is one part."""
    value = parsed(text)
    if not isinstance(value, dict):
        return [{"uri": "Result", "text": text}]
    key = {TOOLS_CALL: "content", RESOURCES_READ: "contents", PROMPTS_GET: "messages"}.get(method, "")
    items = value.get(key)
    if not isinstance(items, list):
        return [_as_json("Result", value)]
    parts = [_part(f"Content {number}", item) for number, item in enumerate(items, 1)]
    rest = {name: value[name] for name in value if name != key and name != "_meta"}
    return [*parts, *(_as_json(_NAMES.get(name, name[:100]), rest[name]) for name in rest)]


_NAMES = {"structuredContent": "Structured content", "isError": "Error flag"}


def _part(name: str, item: Any) -> dict[str, Any]:
    """Text as text and data as data, with the fields around it; anything else as JSON."""
    found, around = item, []
    if isinstance(item, dict) and "role" in item and "content" in item:
        found = item["content"]
        around.append(("content", item))
    if isinstance(found, dict) and isinstance(found.get("resource"), dict):
        around.append(("resource", found))
        found = found["resource"]
    if not isinstance(found, dict):
        return _as_json(name, item)
    mime = str(found.get("mimeType") or "")
    for key, as_key in (("text", "text"), ("data", "blob"), ("blob", "blob")):
        if isinstance(found.get(key), str):
            fields = {one: found[one] for one in found if one not in (key, "mimeType")}
            for inner, outer in reversed(around):
                fields = outer | {inner: fields}
            return {"uri": name, "mimeType": mime, as_key: found[key], "fields": fields}
    return _as_json(name, item)


def _as_json(name: str, value: Any) -> dict[str, Any]:
    return {"uri": name, "mimeType": "application/json", "text": json.dumps(value, indent=2, ensure_ascii=False)}

"""Translates an upstream server's results to what the agent's revision allows, and catalog rows to lists.

Source: the schema of each revision; 2026-07-28 *Utilities / Caching*.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..core import json_text, jsonrpc, methods
from ..core.capabilities import META, declares
from ..core.jsonrpc import RequestId
from ..core.versions import Era

_CACHED: Final = ("ttlMs", "cacheScope")
_READ: Final = frozenset({methods.RESOURCES_READ})
_LISTS: Final = {method: member for method, member, _, _ in methods.LISTS.values()}


def translated(result: Mapping[str, Any], method: str, era: Era) -> dict[str, Any]:
    """The result of an upstream of any era, in the form of the agent's era. Nothing else changes."""
    body = dict(result)
    _drop_protocol_meta(body)
    if method == methods.TOOLS_CALL:
        _keep_content_a_list_of_blocks(body)
    if era is Era.LEGACY:
        for name in ("resultType", *_CACHED):
            body.pop(name, None)
        _keep_structure_an_object(body)
        return body
    body["resultType"] = "complete"
    if method in _READ:
        body["ttlMs"], body["cacheScope"] = _ttl(body.get("ttlMs")), "private"
    return body


def _drop_protocol_meta(body: dict[str, Any]) -> None:
    """What an upstream says about itself is meant only for us."""
    meta = body.get("_meta")
    if not isinstance(meta, dict):
        return
    kept = {name: value for name, value in meta.items() if not name.startswith(META)}
    if kept:
        body["_meta"] = kept
    else:
        del body["_meta"]


def _keep_content_a_list_of_blocks(body: dict[str, Any]) -> None:
    """Clients refuse the whole result otherwise. Any other value stays readable as text."""
    content = body.get("content")
    if content is None:
        structure = body.get("structuredContent")
        body["content"] = [] if structure is None else [_text_block(structure)]
    elif not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        entries = content if isinstance(content, list) else [content]
        body["content"] = [entry if isinstance(entry, dict) else _text_block(entry) for entry in entries]


def _text_block(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value if isinstance(value, str) else json_text.encode(value)}


def _keep_structure_an_object(body: dict[str, Any]) -> None:
    """Until 2025-11-25 structured content is an object. Any other value stays readable as text."""
    if "structuredContent" not in body or isinstance(body["structuredContent"], dict):
        return
    text = json_text.encode(body.pop("structuredContent"))
    content = body.get("content")
    blocks = content if isinstance(content, list) else []
    if not any(isinstance(block, dict) and block.get("type") == "text" for block in blocks):
        body["content"] = [*blocks, {"type": "text", "text": text}]


def _ttl(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def page(
    method: str, items: Iterable[str], cursor: str, era: Era, ttl_ms: int, meta: Mapping[str, Any] | None = None
) -> str:
    """A page of a list as JSON text. `items` are definitions as JSON text, passed on as they were stored. Lists depend
    on the permissions of the token, so no one else may reuse them."""
    text = f'"{_LISTS[method]}":[{",".join(items)}]'
    if cursor:
        text += f',"nextCursor":{json_text.quoted(cursor)}'
    if meta:
        text += f',"_meta":{json_text.encode(meta)}'
    if era is Era.MODERN:
        text += f',"resultType":"complete","ttlMs":{ttl_ms},"cacheScope":"private"'
    return f"{{{text}}}"


def answer(identity: RequestId, result: str) -> bytes:
    """`result` is JSON text of an object."""
    return jsonrpc.utf8(f'{{"jsonrpc":"2.0","id":{jsonrpc.text_of(identity)},"result":{result}}}')


def offered(upstream: Mapping[str, Any]) -> dict[str, Any]:
    """The capabilities of an endpoint: what its server declared and what we relay."""
    found: dict[str, Any] = {}
    if declares(upstream, "tools"):
        found["tools"] = {"listChanged": True}
    if declares(upstream, "resources"):
        found["resources"] = {"listChanged": True}
        if declares(upstream, "resources", "subscribe"):
            found["resources"]["subscribe"] = True
    if declares(upstream, "prompts"):
        found["prompts"] = {"listChanged": True}
    for name in ("completions", "logging"):
        if declares(upstream, name):
            found[name] = {}
    return found


def tool_error(text: str, era: Era, meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A failure that the model can read and act on."""
    body: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if meta:
        body["_meta"] = dict(meta)
    return body | {"resultType": "complete"} if era is Era.MODERN else body

"""Rewrites resource URIs wherever the protocol has them: definitions, results, prompts, requests from a server.
Free text and structured content are left alone.

Source: 2025-11-25 and 2026-07-28 *Server features*; `_meta.ui.resourceUri`: the extension *MCP Apps*.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..core import methods

#: a URI as the other side knows it
Rewrite = Callable[[str], str]
_FLAT_UI = "ui/resourceUri"  # used by earlier versions of the extension


def result(value: Mapping[str, Any], method: str, rewrite: Rewrite) -> dict[str, Any]:
    """The result of a call, a read or a prompt."""
    found = with_meta(value, rewrite)
    if method == methods.RESOURCES_READ:
        found = _each(found, "contents", lambda one: _resource(one, rewrite))
    elif method == methods.PROMPTS_GET:
        found = _each(found, "messages", lambda one: _message(one, rewrite))
    else:
        found = _each(found, "content", lambda one: _block(one, rewrite))
    if isinstance(requests := found.get("inputRequests"), dict):
        found["inputRequests"] = {
            key: {**one, "params": request(one["params"], rewrite)}
            if isinstance(one, dict) and isinstance(one.get("params"), dict)
            else one
            for key, one in requests.items()
        }
    return found


def request(params: Mapping[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    """A server's request during a call: messages for a model may embed its resources."""
    return _each(with_meta(params, rewrite), "messages", lambda one: _message(one, rewrite))


def definition(value: Mapping[str, Any], rewrite: Rewrite, **named: str) -> dict[str, Any]:
    """An entry of a list. `named`: its new name or URI."""
    return {**with_meta(value, rewrite), **named}


def with_meta(value: Mapping[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    found = dict(value)
    meta = found.get("_meta")
    if not isinstance(meta, dict):
        return found
    meta = dict(meta)
    if isinstance(meta.get(_FLAT_UI), str):
        meta[_FLAT_UI] = rewrite(meta[_FLAT_UI])
    if isinstance(ui := meta.get("ui"), dict) and isinstance(ui.get("resourceUri"), str):
        meta["ui"] = {**ui, "resourceUri": rewrite(ui["resourceUri"])}
    found["_meta"] = meta
    return found


def _message(value: dict[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    """Its content is one block or, in sampling since 2025-11-25, several."""
    content = value.get("content")
    if isinstance(content, dict):
        return {**value, "content": _block(content, rewrite)}
    return _each(value, "content", lambda one: _block(one, rewrite))


def _block(value: dict[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    kind, found = value.get("type"), with_meta(value, rewrite)
    if kind == "resource_link":
        return _resource(found, rewrite)
    if kind == "resource" and isinstance(found.get("resource"), dict):
        return {**found, "resource": _resource(found["resource"], rewrite)}
    if kind == "tool_result":
        return _each(found, "content", lambda one: _block(one, rewrite))
    return found


def _resource(value: dict[str, Any], rewrite: Rewrite) -> dict[str, Any]:
    found = with_meta(value, rewrite)
    return {**found, "uri": rewrite(found["uri"])} if isinstance(found.get("uri"), str) else found


def _each(value: Mapping[str, Any], name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    items = value.get(name)
    if not isinstance(items, list):
        return dict(value)
    return {**value, name: [change(one) if isinstance(one, dict) else one for one in items]}

"""What a result of each method shows: its blocks, under which name, and a structured part where it has one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sessions.domain.resource_blocks import contents_of
from sessions.domain.result_blocks import BLOCKS, Block, Budget, block_of, blocks_of
from sessions.protocol import methods

STRUCTURED_CHARS = 200_000
_ABSENT = object()


@dataclass(frozen=True)
class View:
    """`name` of the blocks as a tab says it; `structured` is shown when `has_structured`."""

    name: str
    blocks: list[Block]
    has_structured: bool = False
    structured: Any = None


def view_of(method: str, target: str, result: Mapping[str, Any]) -> View:
    return _VIEWS.get(method, _tool)(target, result)


def _tool(target: str, result: Mapping[str, Any]) -> View:
    structured = result.get("structuredContent", _ABSENT)
    shown = structured is not _ABSENT and len(json.dumps(structured)) <= STRUCTURED_CHARS
    return View("Content", blocks_of(result.get("content")), shown, structured if shown else None)


def _resource(target: str, result: Mapping[str, Any]) -> View:
    return View("Contents", contents_of(result.get("contents"), target))


def _prompt(target: str, result: Mapping[str, Any]) -> View:
    messages = result.get("messages")
    return View("Messages", _messages(messages) if isinstance(messages, list) else [])


def _messages(messages: list[Any]) -> list[Block]:
    """One content a message by the specification; a list of them is taken as well."""
    budget = Budget()
    blocks: list[Block] = []
    for message in messages[:BLOCKS]:
        said = message if isinstance(message, dict) else {"content": message}
        content, role = said.get("content"), str(said.get("role") or "no role")[:60]
        items = content if isinstance(content, list) else [content]
        blocks += [replace(block_of(item, budget), role=role) for item in items[:BLOCKS]]
    if len(messages) > BLOCKS:
        blocks.append(Block("note", text=f"{len(messages) - BLOCKS} more messages are in the raw result."))
    return blocks[: BLOCKS * 2]


def _completion(target: str, result: Mapping[str, Any]) -> View:
    completion = result.get("completion")
    values = completion.get("values") if isinstance(completion, dict) else None
    return View("Values", [Block("json", value=values)] if isinstance(values, list) else [])


_VIEWS: Mapping[str, Callable[[str, Mapping[str, Any]], View]] = {
    methods.TOOLS_CALL: _tool,
    methods.RESOURCES_READ: _resource,
    methods.PROMPTS_GET: _prompt,
    methods.COMPLETE: _completion,
}

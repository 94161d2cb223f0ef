"""How a result of each method is shown: its blocks, the name of their tab, and a structured part if it has one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sessions.calls.blocks import BLOCKS, Block, Budget, block_of, blocks_of, text_block
from sessions.calls.markdown_blocks import with_markdown
from sessions.calls.resource_blocks import contents_of
from sessions.calls.result_files import as_messages, contents_of_message
from sessions.mcp.core import methods

#: up to this size, shown as a tree; a larger one can only be downloaded
STRUCTURED_BYTES = 1_000_000
BRIEF_CHARS = 100_000
MESSAGES_CHARS = 100_000
_ABSENT = object()


@dataclass(frozen=True)
class View:
    """`name`: the name of the blocks' tab. `structured` is shown if `has_structured`, after the blocks if
    `blocks_first`. `messages`: JSON of PromptMessage to copy, unless it is large. `structured_size` is set if
    `structured` is too large to be shown as a tree.
    """

    name: str
    blocks: list[Block]
    has_structured: bool = False
    structured: Any = None
    structured_size: int | None = None
    blocks_first: bool = False
    messages: str = ""

    @property
    def passable(self) -> bool:
        """Whether any of it may become an argument of another tool."""
        return self.has_structured or any(block.passable for block in self.blocks)


def parsed(text: str) -> Any:
    """None if it is not JSON, or is nested too deeply to be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def view_of(method: str, target: str, result: Mapping[str, Any]) -> View:
    if result.get("resultType") == "input_required":  # an agent's call, which continues with another call
        return View("Input required", [Block("json", value=result.get("inputRequests") or {})])
    view = _VIEWS.get(method, _tool)(target, result)
    return replace(view, blocks=with_markdown(view.blocks))


def lighter(view: View) -> View:
    """The same view within BRIEF_CHARS: media from their own URLs, truncated texts, no trees."""
    left = BRIEF_CHARS
    blocks = []
    for block in view.blocks:
        text = json.dumps(block.value, ensure_ascii=False) if block.kind == "json" else block.text
        blocks.append(
            replace(
                block,
                kind="text" if block.kind == "json" else block.kind,
                text=text[:left],
                value=None,
                source="",
                rendered="",
                cut=block.cut or len(text) > left,
            )
        )
        left -= min(left, len(text))
    size = view.structured_size or len(json.dumps(view.structured, ensure_ascii=False))
    return replace(
        view, blocks=blocks, messages="", structured=None, structured_size=size if view.has_structured else None
    )


def _tool(target: str, result: Mapping[str, Any]) -> View:
    structured, blocks = result.get("structuredContent", _ABSENT), blocks_of(result.get("content"))
    if structured is _ABSENT:
        return View("Content", blocks)
    size = len(json.dumps(structured, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if size > STRUCTURED_BYTES:
        return View("Content", blocks, has_structured=True, structured_size=size, blocks_first=bool(blocks))
    if (text := _one_text(structured)) is not None:
        # Some servers repeat the structured content as JSON text. People want to read neither quotes nor escapes.
        repeated = not blocks or [(block.kind, block.value) for block in blocks] == [("json", structured)]
        shown = [text_block(text)] if repeated else blocks
        return View("Content", shown, has_structured=True, structured=structured, blocks_first=True)
    return View("Content", blocks, has_structured=True, structured=structured)


def _one_text(structured: Any) -> str | None:
    """The text of `{"result": "..."}`, FastMCP's wrapper for results that are not objects, and of any other single text
    member."""
    if isinstance(structured, dict) and len(structured) == 1:
        (structured,) = structured.values()
    return structured if isinstance(structured, str) else None


def _resource(target: str, result: Mapping[str, Any]) -> View:
    contents = result.get("contents")
    messages = as_messages(contents if isinstance(contents, list) else [])
    return View("Contents", contents_of(contents, target), messages=_copied(messages))


def _prompt(target: str, result: Mapping[str, Any]) -> View:
    messages = result.get("messages")
    if not isinstance(messages, list):
        return View("Messages", [])
    return View("Messages", _messages(messages), messages=_copied(messages))


def _copied(messages: list[Any]) -> str:
    """ASCII JSON: hidden characters are part of the copied text, but are not in the page."""
    text = json.dumps(messages, indent=2) if messages else ""
    return text if len(text) <= MESSAGES_CHARS else ""


def _messages(messages: list[Any]) -> list[Block]:
    """The position of a block is that of its content in `result_files.items_of`."""
    budget = Budget()
    blocks: list[Block] = []
    position = 0
    for message in messages[:BLOCKS]:
        role = str((message.get("role") if isinstance(message, dict) else None) or "no role")[:60]
        items = contents_of_message(message)
        shown = items[: min(BLOCKS, BLOCKS * 2 - len(blocks))]
        blocks += [replace(block_of(item, budget, position + n), role=role) for n, item in enumerate(shown)]
        position += len(items)
    more = ((len(messages) - BLOCKS, "messages"), (position - len(blocks), "content items of these messages"))
    left_out = " and ".join(f"{count} more {what}" for count, what in more if count > 0)
    return [*blocks, Block("note", text=f"{left_out} in the raw result.")] if left_out else blocks


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

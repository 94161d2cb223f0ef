"""What a server asks a model, sorted for a page: messages, prompt, preferences, tools. All of it is the server's text.

Source: MCP 2025-11-25, client/sampling. Only sorts and truncates, and says what it truncated; the templates escape.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sessions.calls.blocks import Block, blocks_of

MESSAGES = 100
TOOLS = 100
TEXT_CHARS = 64_000
LINE_CHARS = 2_000


@dataclass(frozen=True)
class SampledMessage:
    role: str
    blocks: list[Block]


@dataclass(frozen=True)
class OfferedTool:
    """`schema`: the schema of the arguments in an answer that uses the tool."""

    name: str
    description: str
    schema: Any = None


@dataclass(frozen=True)
class SamplingRequest:
    """`facts` are label and value; `more` and `more_tools` count messages and tools that are not shown, `prompt_left` the
    characters of the system prompt."""

    messages: list[SampledMessage]
    more: int
    system_prompt: str
    facts: list[tuple[str, str]]
    tools: list[OfferedTool]
    more_tools: int = 0
    prompt_left: int = 0


def read_request(params: Mapping[str, Any]) -> SamplingRequest:
    messages, tools = _list(params.get("messages")), _list(params.get("tools"))
    prompt = _text(params.get("systemPrompt"))
    return SamplingRequest(
        messages=[_message(entry) for entry in messages[:MESSAGES]],
        more=max(0, len(messages) - MESSAGES),
        system_prompt=prompt[:TEXT_CHARS],
        facts=list(_facts(params)),
        tools=[_tool(entry) for entry in tools[:TOOLS] if isinstance(entry, dict)],
        more_tools=max(0, len(tools) - TOOLS),
        prompt_left=max(0, len(prompt) - TEXT_CHARS),
    )


def _tool(entry: Mapping[str, Any]) -> OfferedTool:
    description = _text(entry.get("description"))
    cut = description if len(description) <= LINE_CHARS else f"{description[:LINE_CHARS]}…"
    return OfferedTool(_text(entry.get("name"))[:200], cut, entry.get("inputSchema"))


def _message(entry: Any) -> SampledMessage:
    if not isinstance(entry, dict):
        return SampledMessage("not a message", [Block("json", value=entry)])
    content = entry.get("content")
    items = content if isinstance(content, list) else [content]
    blocks = [block for item in items[:MESSAGES] for block in _blocks(item)]
    if len(items) > MESSAGES:
        blocks.append(Block("note", text=f"{len(items) - MESSAGES:,} more blocks are not shown."))
    return SampledMessage(_text(entry.get("role"))[:40] or "no role", blocks)


def _blocks(item: Any) -> list[Block]:
    """Two kinds exist only in sampling; the others are those of a result."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "tool_use":
        return [Block("json", f"Call to tool “{_text(item.get('name'))[:200]}”", value=item.get("input"))]
    if kind == "tool_result":
        word = "Error" if item.get("isError") is True else "Result"
        blocks = [
            Block("note", f"{word} of call {_text(item.get('toolUseId'))[:200]}"),
            *blocks_of(item.get("content")),
        ]
        more = item.get("structuredContent")
        return blocks if more is None else [*blocks, Block("json", "Structured content", value=more)]
    return blocks_of([item])


def _facts(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(most := params.get("maxTokens"), int):
        yield "Max tokens", f"{most:,} tokens"
    preferences = params.get("modelPreferences")
    if isinstance(preferences, dict):
        yield from _preferences(preferences)
    if isinstance(heat := params.get("temperature"), int | float):
        yield "Temperature", str(heat)
    if stops := _list(params.get("stopSequences")):
        yield (
            "Stop sequences",
            ", ".join(json.dumps(_text(stop), ensure_ascii=False) for stop in stops[:20])[:LINE_CHARS],
        )
    if isinstance(context := params.get("includeContext"), str) and context != "none":
        yield "Context", context[:100]
    choice = params.get("toolChoice")
    if isinstance(choice, dict) and isinstance(choice.get("mode"), str):
        yield "Tool choice", choice["mode"][:40]


def _preferences(preferences: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hints = [_text(hint.get("name"))[:100] for hint in _list(preferences.get("hints"))[:20] if isinstance(hint, dict)]
    if named := ", ".join(filter(None, hints)):
        yield "Model", named
    for word in ("cost", "speed", "intelligence"):
        if isinstance(weight := preferences.get(f"{word}Priority"), int | float):
            yield f"{word.capitalize()} priority", f"{_number(weight)} of 1"


def _number(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:  # a whole number of hundreds of digits, which JSON allows
        return str(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""

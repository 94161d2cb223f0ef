"""What a server asks a model, sorted for a page: messages, prompt, preferences, tools. All of it is the server's text.

Source: MCP 2025-11-25, client/sampling. Only sorts and cuts; the templates escape.
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
    name: str
    description: str


@dataclass(frozen=True)
class SamplingRequest:
    """`facts` are label and value; `more` counts messages that are not shown."""

    messages: list[SampledMessage]
    more: int
    system_prompt: str
    facts: list[tuple[str, str]]
    tools: list[OfferedTool]


def read_request(params: Mapping[str, Any]) -> SamplingRequest:
    messages = _list(params.get("messages"))
    tools = [tool for tool in _list(params.get("tools"))[:TOOLS] if isinstance(tool, dict)]
    return SamplingRequest(
        messages=[_message(entry) for entry in messages[:MESSAGES]],
        more=max(0, len(messages) - MESSAGES),
        system_prompt=_text(params.get("systemPrompt"))[:TEXT_CHARS],
        facts=list(_facts(params)),
        tools=[
            OfferedTool(_text(tool.get("name"))[:200], _text(tool.get("description"))[:LINE_CHARS]) for tool in tools
        ],
    )


def _message(entry: Any) -> SampledMessage:
    if not isinstance(entry, dict):
        return SampledMessage("not a message", [Block("json", value=entry)])
    content = entry.get("content")
    items = content if isinstance(content, list) else [content]
    blocks = [block for item in items[:MESSAGES] for block in _blocks(item)]
    return SampledMessage(_text(entry.get("role"))[:40] or "no role", blocks)


def _blocks(item: Any) -> list[Block]:
    """Two kinds exist only in sampling; the others are those of a result."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "tool_use":
        return [Block("json", f"Call to tool “{_text(item.get('name'))[:200]}”", value=item.get("input"))]
    if kind == "tool_result":
        title = f"Result of call {_text(item.get('toolUseId'))[:200]}"
        return [Block("note", title), *blocks_of(item.get("content"))]
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

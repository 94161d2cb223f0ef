"""A sampling request is parsed and shown whatever shape it has."""

from typing import Any

import pytest

from sessions.inbox.sampling_request import LINE_CHARS, MESSAGES, TEXT_CHARS, TOOLS, read_request

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_everything_that_a_server_may_wish_is_shown() -> None:
    request = read_request(
        {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Look"}},
                {"role": "user", "content": {"type": "image", "data": PICTURE, "mimeType": "image/png"}},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "zoom", "input": {"by": 2}}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "toolUseId": "1", "content": [{"type": "text", "text": "ok"}]}],
                },
                {
                    "role": "user",
                    "content": {
                        "type": "tool_result",
                        "toolUseId": "2",
                        "isError": True,
                        "structuredContent": {"a": 1},
                    },
                },
            ],
            "systemPrompt": "Be brief.",
            "maxTokens": 1000,
            "temperature": 0.2,
            "stopSequences": ["END"],
            "includeContext": "thisServer",
            "modelPreferences": {"hints": [{"name": "small"}, {"name": "fast"}], "costPriority": 0.5},
            "tools": [{"name": "zoom", "description": "Zooms in.", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "auto"},
        }
    )
    assert [message.role for message in request.messages] == ["user", "user", "assistant", "user", "user"]
    assert [block.kind for message in request.messages for block in message.blocks] == [
        "text",
        "image",
        "json",
        "note",
        "text",
        "note",
        "json",
    ]
    assert [block.title for block in request.messages[4].blocks] == ["Error of call 2", "Structured content"]
    assert request.system_prompt == "Be brief."
    assert dict(request.facts) == {
        "Max tokens": "1,000 tokens", "Temperature": "0.2", "Stop sequences": '"END"', "Context": "thisServer",
        "Model": "small, fast", "Cost priority": "0.5 of 1", "Tool choice": "auto",
    }  # fmt: skip
    assert [(tool.name, tool.schema) for tool in request.tools] == [("zoom", {"type": "object"})]


NONSENSE: dict[str, Any] = {
    "empty": {},
    "no-list": {"messages": "hello", "tools": 4, "modelPreferences": [], "stopSequences": {}},
    "no-objects": {"messages": [1, None, "x", []], "tools": ["x"], "modelPreferences": {"hints": [1]}},
    "huge-numbers": {
        "maxTokens": 10**400,
        "temperature": 10**400,
        "modelPreferences": {"costPriority": 10**400, "speedPriority": 1e300},
    },
    "no-content": {"messages": [{"role": 5}, {"content": [[], {"type": "tool_use"}, {"type": "tool_result"}]}]},
}


@pytest.mark.parametrize("params", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_never_breaks_the_page(params: dict[str, Any]) -> None:
    assert read_request(params).system_prompt == ""


def test_a_flood_of_messages_is_cut_and_counted() -> None:
    request = read_request({"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}] * (MESSAGES + 7)})
    assert (len(request.messages), request.more) == (MESSAGES, 7)


def test_nothing_else_is_cut_without_a_word() -> None:
    request = read_request(
        {
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * (MESSAGES + 2)}],
            "systemPrompt": "x" * (TEXT_CHARS + 5),
            "tools": [{"name": "zoom", "description": "x" * (LINE_CHARS + 1)}] * (TOOLS + 3),
        }
    )
    assert request.messages[0].blocks[-1].text == "2 more blocks are not shown."
    assert (request.prompt_left, request.more_tools) == (5, 3)
    assert request.tools[0].description.endswith("x…")

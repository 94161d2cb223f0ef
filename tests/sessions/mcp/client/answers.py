"""Answers of the test client to a server's requests, and calls that make a scripted server ask."""

import json
import sys
from pathlib import Path
from typing import Any

from sessions.mcp.client import InputRequest, Refused
from sessions.mcp.core.results import ToolResult
from sessions.mcp.transports.registry import StdioSpec

SCRIPTS = Path(__file__).parent / "scripts"
ELICIT, SAMPLE = "elicitation/create", "sampling/createMessage"
FORM = {
    "message": "Who?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "Ada"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["a", "b"], "default": "b"},
            "verified": {"type": "boolean", "default": True},
        },
    },
}
DEFAULTS = {"name": "Ada", "age": 30, "score": 95.5, "status": "b", "verified": True}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


def asking(revision: str = "2025-11-25") -> StdioSpec:
    return StdioSpec(sys.executable, (str(SCRIPTS / "asking.py"), revision))


async def defaults(asked: InputRequest) -> dict[str, Any]:
    properties = asked.params["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: one["default"] for name, one in properties.items()}}


async def refuse(asked: InputRequest) -> dict[str, Any]:
    raise Refused(message="Not today")


async def complete(asked: InputRequest) -> dict[str, Any]:
    content = {"type": "text", "text": "hello"}
    return {"role": "assistant", "content": content, "model": "tests", "stopReason": "endTurn"}


def value(result: ToolResult) -> Any:
    return json.loads(result.content[0]["text"])


def question(identity: int | str, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": identity, "method": method, "params": params or {}}


def ask(*questions: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the tool `ask`."""
    return {"messages": list(questions), "expect": [one["id"] for one in questions]}

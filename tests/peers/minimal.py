"""The smallest correct legacy server: the replies of the evil peers until they misbehave. Standard library only."""

from typing import Any

MIB = 1024 * 1024
BIG_RESULT = 13 * MIB
TOOLS = [
    {
        "name": "shout",
        "description": "Say it louder.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {"name": "big", "description": "Answers with 13 MiB.", "inputSchema": {"type": "object"}},
]


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _call(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("name") == "big":
        return text_result("x" * BIG_RESULT)
    return text_result(str(params.get("arguments", {}).get("text", "")).upper())


def _initialize(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params.get("protocolVersion", "2025-11-25"),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "evil-peer", "version": "1"},
    }


METHODS = {
    "initialize": _initialize,
    "ping": lambda _: {},
    "tools/list": lambda _: {"tools": TOOLS},
    "tools/call": _call,
}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The response to one message; None for a notification."""
    if "id" not in message or "method" not in message:
        return None
    head = {"jsonrpc": "2.0", "id": message["id"]}
    method = METHODS.get(message["method"])
    if method is None:
        return head | {"error": {"code": -32601, "message": f"Method not found: {message['method']}"}}
    return head | {"result": method(message.get("params", {}))}

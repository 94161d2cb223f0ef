"""A legacy stdio server whose tool `target` changes when `shift` is called, and which announces that as it should: the
notification leaves before the result. Each run of `target` leaves a line in $EFFECT_LOG."""

import json
import os
import sys
from pathlib import Path
from typing import Any

FIRST = {"type": "object", "properties": {"n": {"type": "integer"}}}
EFFECTS = Path(os.environ["EFFECT_LOG"])
shape: dict[str, Any] = FIRST


def tools() -> list[dict[str, Any]]:
    return [
        {"name": "target", "inputSchema": shape},
        {"name": "shift", "inputSchema": {"type": "object", "properties": {"to": {"type": "integer"}}}},
    ]


def call(params: dict[str, Any]) -> dict[str, Any]:
    global shape
    arguments = params.get("arguments") or {}
    if params["name"] == "shift":
        number = arguments.get("to", 0)
        shape = (
            {"type": "object", "properties": {"n": {"type": "string"}}, "required": [f"x{number}"]} if number else FIRST
        )
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    else:
        with EFFECTS.open("a") as log:
            log.write(f"target {json.dumps(arguments)}\n")
    return {"content": [{"type": "text", "text": "done"}]}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "shifting", "version": "1"},
            }
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return call(request["params"])
        case "ping":
            return {}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request)
    if result is None:
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
    else:
        send({"jsonrpc": "2.0", "id": request["id"], "result": result})

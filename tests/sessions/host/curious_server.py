"""A small MCP server over stdio that asks for roots and announces new tools. Standard library only.

EFFECT_LOG  one line each: "started", "declared <our capabilities>", "roots <JSON>", "listen <filter>",
            "trace <traceparent> <log level>" of each call
ERA         legacy (2025-11-25, the default) or modern (2026-07-28)

Tools: `grow` adds a tool and announces it; `list_roots` asks for the roots in a round (modern).
"""

import json
import os
import sys
from typing import Any

MODERN = os.environ.get("ERA") == "modern"
META = "io.modelcontextprotocol/"
OBJECT = {"type": "object"}
TOOLS: list[dict[str, Any]] = [{"name": name, "inputSchema": OBJECT} for name in ("grow", "list_roots")]
CAPABILITIES: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
listening: list[Any] = []


def effect(text: str) -> None:
    with open(os.environ["EFFECT_LOG"], "a") as log:
        log.write(text + "\n")


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
    sys.stdout.flush()


def answer(request_id: Any, result: dict[str, Any]) -> None:
    send({"id": request_id, "result": ({"resultType": "complete"} if MODERN else {}) | result})


def fail(request_id: Any, code: int, message: str) -> None:
    send({"id": request_id, "error": {"code": code, "message": message}})


def say(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def ask_for_roots() -> None:
    send({"id": "roots", "method": "roots/list"})


def tell_of_tools() -> None:
    if not MODERN:
        send({"method": "notifications/tools/list_changed"})
    for subscription in listening:
        meta = {META + "subscriptionId": subscription}
        send({"method": "notifications/tools/list_changed", "params": {"_meta": meta}})


def listen(request_id: Any, wanted: dict[str, Any]) -> None:
    effect(f"listen {json.dumps(wanted)}")
    listening.append(request_id)
    honoured = {"toolsListChanged": True} if wanted.get("toolsListChanged") else {}
    params = {"_meta": {META + "subscriptionId": request_id}, "notifications": honoured}
    send({"method": "notifications/subscriptions/acknowledged", "params": params})


def call(request_id: Any, params: dict[str, Any]) -> None:
    meta = params.get("_meta", {})
    effect(f"trace {meta.get('traceparent')} {meta.get(META + 'logLevel')}")
    if params["name"] == "grow":
        TOOLS.append({"name": f"extra-{len(TOOLS)}", "inputSchema": OBJECT})
        answer(request_id, say("grown"))
        tell_of_tools()
    elif "inputResponses" in params:
        given = params["inputResponses"]["r"]
        effect(f"roots {json.dumps(given)}")
        answer(request_id, say("thanks"))
    else:
        asked = {"inputRequests": {"r": {"method": "roots/list", "params": {}}}, "requestState": "s"}
        answer(request_id, {"resultType": "input_required", **asked})


def request(request_id: Any, method: str, params: dict[str, Any]) -> None:
    if method == "server/discover" and MODERN:
        effect("discover")
        answer(request_id, {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "ttlMs": 0})
    elif method == "initialize" and not MODERN:
        effect(f"declared {json.dumps(params['capabilities'], sort_keys=True)}")
        told = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES}
        answer(request_id, told | {"serverInfo": {"name": "curious", "version": "1"}})
    elif method == "tools/list":
        answer(request_id, {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"} if MODERN else {"tools": TOOLS})
    elif method == "tools/call":
        call(request_id, params)
    elif method == "subscriptions/listen" and MODERN:
        listen(request_id, params["notifications"])
    elif method == "ping":
        answer(request_id, {})
    else:
        if method == "server/discover":
            effect("probed")
        fail(request_id, -32601, "Method not found")


def handle(message: dict[str, Any]) -> None:
    method = message.get("method")
    if method is None:
        effect(f"roots {json.dumps(message.get('result', message.get('error')))}")
    elif method in ("notifications/initialized", "notifications/roots/list_changed"):
        ask_for_roots()
    elif "id" in message:
        request(message["id"], method, message.get("params") or {})


effect("started")
for line in sys.stdin:
    handle(json.loads(line))

"""A small MCP server over stdio whose lists a call can change. Standard library only.

EFFECT_LOG  one line per list request: "list <method>" (optional)
ERA         legacy (2025-11-25, the default) or modern (2026-07-28)
TTL_MS      caching hint of the tool list (modern)

Tool `count` {"to": n}: reports progress and logs each step, three a second.
Tool `put` {"tools": […], "resources": […], "broken": […], "tell": […], "say": "…"}: replaces each list given,
answers the lists named in `broken` with an error, sends the notifications named in `tell`, and logs while it runs.
"""

import json
import os
import sys
import threading
import time
from typing import Any

MODERN = os.environ.get("ERA") == "modern"
META = "io.modelcontextprotocol/"
PUT = {"name": "put", "inputSchema": {"type": "object"}}
COUNT = {
    "name": "count",
    "inputSchema": {"type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]},
}
SHELF: dict[str, list[Any]] = {"tools": [PUT, COUNT], "resources": [{"uri": "shelf:///a", "name": "a"}], "prompts": []}
BROKEN: set[str] = set()
STOPPED: set[Any] = set()
writing = threading.Lock()
CAPABILITIES: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {"listChanged": True}, "logging": {}}
LISTS = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}


def effect(text: str) -> None:
    if path := os.environ.get("EFFECT_LOG"):
        with open(path, "a") as log:
            log.write(text + "\n")


def send(message: dict[str, Any]) -> None:
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def answer(request_id: Any, result: dict[str, Any]) -> None:
    send({"id": request_id, "result": ({"resultType": "complete"} if MODERN else {}) | result})


def listed(request_id: Any, method: str) -> None:
    effect(f"list {method}")
    name = LISTS.get(method)
    if name in BROKEN:
        send({"id": request_id, "error": {"code": -32603, "message": "the shelf fell down"}})
        return
    found = {"resourceTemplates": []} if name is None else {name: SHELF[name]}
    hints = {"ttlMs": int(os.environ.get("TTL_MS", "0")) if name == "tools" else 0, "cacheScope": "private"}
    answer(request_id, found | (hints if MODERN else {}))


def put(request_id: Any, given: dict[str, Any]) -> None:
    for name in SHELF:
        SHELF[name] = given.get(name, SHELF[name])
    BROKEN.clear()
    BROKEN.update(given.get("broken", []))
    if "say" in given:
        send({"method": "notifications/message", "params": {"level": "warning", "data": given["say"]}})
    answer(request_id, {"content": [{"type": "text", "text": "put"}]})
    for name in given.get("tell", []):
        send({"method": f"notifications/{name}/list_changed"})


def count(request_id: Any, given: dict[str, Any], token: Any) -> None:
    for done in range(1, given["to"] + 1):
        time.sleep(0.3)
        if request_id in STOPPED:
            return
        told = {"progressToken": token, "progress": done, "total": given["to"], "message": f"step {done}"}
        send({"method": "notifications/progress", "params": told})
        send({"method": "notifications/message", "params": {"level": "warning", "data": f"did step {done}"}})
    answer(request_id, {"content": [{"type": "text", "text": f"counted to {given['to']}"}]})


def called(request_id: Any, params: dict[str, Any]) -> None:
    given = params.get("arguments") or {}
    if params["name"] == "count":
        token = params["_meta"]["progressToken"]
        threading.Thread(target=count, args=(request_id, given, token), daemon=True).start()
    else:
        put(request_id, given)


def request(request_id: Any, method: str, params: dict[str, Any]) -> None:
    if method == "server/discover" and MODERN:
        answer(request_id, {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "ttlMs": 0})
    elif method == "initialize" and not MODERN:
        told = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES}
        answer(request_id, told | {"serverInfo": {"name": "shelf", "version": "1"}})
    elif method.endswith("/list"):
        listed(request_id, method)
    elif method == "tools/call":
        called(request_id, params)
    elif method == "ping":
        answer(request_id, {})
    else:
        send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "notifications/cancelled":
        STOPPED.add(message["params"]["requestId"])
    elif "id" in message and "method" in message:
        request(message["id"], message["method"], message.get("params") or {})

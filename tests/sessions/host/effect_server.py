"""A small legacy MCP server over stdio that writes every effect to a file before it answers. Standard library only.

EFFECT_LOG  one line per effect: "<tool> <text>", "cancelled <tool>", "started <pid>"
"""

import json
import os
import sys
import threading
import time
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "description": "Says it back.", "inputSchema": TEXT},
    {"name": "slow", "description": "Takes its time.", "inputSchema": {"type": "object"}},
    {"name": "fail", "description": "Says isError.", "inputSchema": {"type": "object"}},
    {"name": "rpc", "description": "Answers a JSON-RPC error.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "Ends the process.", "inputSchema": {"type": "object"}},
    {"name": "leak", "description": "Tells its token.", "inputSchema": {"type": "object"}},
    {
        "name": "login",
        "description": "Says what it was given.",
        "inputSchema": {"type": "object", "properties": {"user": {}, "password": {"format": "password"}}},
    },
    {"name": "grow", "description": "Adds a tool.", "inputSchema": {"type": "object"}},
    {
        "name": "shaped",
        "description": "Breaks its own output schema.",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
]
_lock = threading.Lock()
_cancelled: set[Any] = set()


def effect(text: str) -> None:
    descriptor = os.open(os.environ["EFFECT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, (text + "\n").encode())
    os.fsync(descriptor)
    os.close(descriptor)


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def notify(method: str, **params: Any) -> None:
    send({"method": method, "params": params})


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": False} | more


def call(request_id: Any, name: str, arguments: dict[str, Any], token: Any) -> None:
    effect(f"{name} {arguments.get('text', '')}".strip())
    if name == "echo":
        result = arguments.get("result", text(arguments.get("text", "")))  # a result is given back as it is
    elif name == "fail":
        result = text("it did not work", isError=True)
    elif name == "rpc":
        return send({"id": request_id, "error": {"code": -32602, "message": "no such thing", "data": {"why": "x"}}})
    elif name == "die":
        os._exit(3)
    elif name == "leak":
        print("my token is", os.environ.get("TOKEN"), file=sys.stderr, flush=True)
        result = text(f"the token is {os.environ.get('TOKEN')}")
    elif name == "login":
        effect(f"password {arguments['password']}")
        result = text(
            f"welcome, {arguments['user']}: ghp_{'a1B2' * 9}", structuredContent={"session": "s3cr3t", "n": 1}
        )
    elif name == "grow":
        TOOLS.append({"name": f"extra-{len(TOOLS)}", "inputSchema": {"type": "object"}})
        notify("notifications/tools/list_changed")
        result = text("grown")
    elif name == "shaped":
        result = text("bad", structuredContent={"n": "not a number"})
    else:
        return slow(request_id, arguments, token)
    send({"id": request_id, "result": result})


def slow(request_id: Any, arguments: dict[str, Any], token: Any) -> None:
    end = time.monotonic() + float(arguments.get("seconds", 1))
    step = 0
    while time.monotonic() < end:
        time.sleep(0.02)
        step += 1
        if request_id in _cancelled and not arguments.get("stubborn"):
            return effect("cancelled slow")
        if token is not None and step % 5 == 0:
            notify("notifications/progress", progressToken=token, progress=step, message=f"step {step}")
    send({"id": request_id, "result": text("at last")})


def answer(message: dict[str, Any]) -> None:
    method, params, request_id = message.get("method"), message.get("params") or {}, message.get("id")
    if method == "notifications/cancelled":
        _cancelled.add(params.get("requestId"))
    elif request_id is None:
        return
    elif method == "initialize":
        tools = {"tools": {"listChanged": True}, "logging": {}}
        info = {"name": "effects", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": tools, "serverInfo": info}
        send({"id": request_id, "result": result | {"instructions": "Try echo."}})
        notify("notifications/message", level="warning", logger="effects", data={"hello": "log"})
    elif method == "ping":
        send({"id": request_id, "result": {}})
    elif method == "tools/list":
        send({"id": request_id, "result": {"tools": TOOLS}})
    elif method == "tools/call":
        token = (params.get("_meta") or {}).get("progressToken")
        arguments = (request_id, params["name"], params.get("arguments") or {}, token)
        threading.Thread(target=call, args=arguments, daemon=True).start()
    else:
        send({"id": request_id, "error": {"code": -32601, "message": f"Method not found: {method}"}})


def main() -> None:
    effect(f"started {os.getpid()}")
    for line in sys.stdin:
        answer(json.loads(line))


if __name__ == "__main__":
    main()

"""A small legacy MCP server over stdio with resources, a prompt and completion. It logs each request before it answers.

EFFECT_LOG  one line per request: "read <uri>", "get <name> <arguments>", "complete <argument>", "cancelled"
"""

import base64
import json
import os
import sys
import threading
from typing import Any

RESOURCES = [{"uri": "lib://plain", "name": "plain", "mimeType": "text/plain"}]
TEMPLATES = [{"uriTemplate": "lib://shelf/{name}", "name": "shelf"}]
PROMPTS = [{"name": "review", "arguments": [{"name": "code", "required": True}, {"name": "tone"}]}]
LISTS = {
    "resources/list": {"resources": RESOURCES},
    "resources/templates/list": {"resourceTemplates": TEMPLATES},
    "prompts/list": {"prompts": PROMPTS},
    "tools/list": {"tools": []},
}
_lock = threading.Lock()
_over: dict[Any, threading.Event] = {}


def effect(text: str) -> None:
    descriptor = os.open(os.environ["EFFECT_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, (text + "\n").encode())
    os.close(descriptor)


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        sys.stdout.flush()


def read(request_id: Any, uri: str, token: Any) -> None:
    effect(f"read {uri}")
    if uri == "lib://die":
        os._exit(3)
    if uri == "lib://slow":
        return slow(request_id, token)
    if uri == "lib://lost":
        return send({"id": request_id, "error": {"code": -32002, "message": "Resource not found"}})
    blob = base64.b64encode(b"\x00\x01binary").decode()
    contents: Any = [{"uri": uri, "mimeType": "text/plain", "text": f"the text of {uri}"}]
    if uri == "lib://mixed":
        contents.append({"uri": "lib://mixed/2", "mimeType": "application/octet-stream", "blob": blob})
    send({"id": request_id, "result": {"contents": "none" if uri == "lib://broken" else contents}})


def slow(request_id: Any, token: Any) -> None:
    over = _over[request_id] = threading.Event()
    step = 0
    while not over.wait(0.05):
        step += 1
        if token is not None:
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
    effect("cancelled")


def get(request_id: Any, name: str, arguments: dict[str, str]) -> None:
    effect(f"get {name} {json.dumps(arguments)}")
    content = {"type": "text", "text": f"Review {arguments['code']}"}
    send({"id": request_id, "result": {"messages": [{"role": "user", "content": content}]}})


def complete(request_id: Any, params: dict[str, Any]) -> None:
    effect(f"complete {json.dumps(params, sort_keys=True)}")
    values = [word for word in ("kind", "keen", "harsh") if word.startswith(params["argument"]["value"])]
    send({"id": request_id, "result": {"completion": {"values": values}}})


def answer(message: dict[str, Any]) -> None:
    method, params, request_id = message.get("method"), message.get("params") or {}, message.get("id")
    token = (params.get("_meta") or {}).get("progressToken")
    if method == "notifications/cancelled" and params.get("requestId") in _over:
        _over[params["requestId"]].set()
    elif method == "initialize":
        able = {"resources": {}, "prompts": {}, "completions": {}}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": able}
        send({"id": request_id, "result": result | {"serverInfo": {"name": "library", "version": "1"}}})
    elif method == "resources/read":
        threading.Thread(target=read, args=(request_id, params["uri"], token), daemon=True).start()
    elif method == "prompts/get":
        get(request_id, params["name"], params.get("arguments") or {})
    elif method == "completion/complete":
        complete(request_id, params)
    elif request_id is not None:
        send({"id": request_id, "result": LISTS.get(str(method), {})})


if __name__ == "__main__":
    for line in sys.stdin:
        answer(json.loads(line))

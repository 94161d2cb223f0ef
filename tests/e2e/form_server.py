"""A stdio server with complex tool forms: lists, branches, secrets, many tools. Standard library only.

form_server.py [number of tools] [number of resources and of prompts] [number of templates]
"""

import json
import sys
import time

TEXT = {"type": "string"}
ORDER = {
    "type": "object",
    "properties": {
        "title": TEXT,
        "tags": {"type": "array", "items": TEXT},
        "when": {
            "oneOf": [
                {"title": "Day", "type": "object", "properties": {"day": TEXT}, "required": ["day"]},
                {"title": "Week", "type": "object", "properties": {"week": TEXT}, "required": ["week"]},
            ]
        },
        "password": TEXT | {"format": "password"},
        "notes_for_the_person_who_packs_this_order_in_the_warehouse": {"type": "integer"},
        "login": {"type": "object", "writeOnly": True, "properties": {"pin": TEXT}, "required": ["pin"]},
    },
    "required": ["title", "tags", "when", "password", "login"],
}
SHOUT = {"type": "object", "properties": {"text": TEXT}, "required": ["text"]}
PARCEL = {
    "type": "object",
    "properties": {"name": TEXT, "note": TEXT, "fragile": {"type": "boolean"}},
    "required": ["name"],
}
PARCELS = {
    "type": "object",
    "properties": {"parcels": {"type": "array", "items": PARCEL}, "speed": {"enum": ["slow", "fast"]}},
    "required": ["parcels", "speed"],
}
MANY = int(sys.argv[1]) if sys.argv[1:] else 60
TOOLS = [
    {"name": "shout", "description": "Say it louder.", "inputSchema": SHOUT},
    {"name": "order", "description": "Takes an order.", "inputSchema": ORDER},
    *({"name": f"tool-{number:02}", "inputSchema": SHOUT if number else PARCELS} for number in range(MANY)),
]
ENTRIES = int(sys.argv[2]) if sys.argv[2:] else 0
TEMPLATES = int(sys.argv[3]) if sys.argv[3:] else 0
LISTS = {
    "resources/list": {"resources": [{"uri": f"memo:{n:03}", "name": f"Memo {n:03}"} for n in range(ENTRIES)]},
    "resources/templates/list": {
        "resourceTemplates": [{"uriTemplate": f"note-{n:03}:{{day}}", "name": f"Note {n:03}"} for n in range(TEMPLATES)]
    },
    "prompts/list": {"prompts": [{"name": f"prompt-{n:03}"} for n in range(ENTRIES)]},
}
CAPABILITIES = {"tools": {}} | ({"resources": {}, "prompts": {}} if ENTRIES else {})


def result_of(method: str, params: dict) -> dict | None:
    if method == "initialize":
        version = params.get("protocolVersion", "2025-11-25")
        info = {"name": "forms", "version": "1"}
        return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if ENTRIES and method in LISTS:
        return LISTS[method]
    if method == "tools/call":
        if params.get("arguments") == {"text": "nap"}:
            time.sleep(4)
        text = json.dumps(params.get("arguments", {}), sort_keys=True).upper()
        return {"content": [{"type": "text", "text": text}], "isError": False}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = result_of(message["method"], message.get("params", {}))
    outcome = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)

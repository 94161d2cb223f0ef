"""A modern stdio server for tests of subscriptions. It acknowledges each listen request except for the URI `note://no`.
The tool `send` writes the given messages, `seen` returns the listen requests received and cancelled, `meta` returns its
own `_meta`, and `exit` ends the process.

Standard library only, because each test starts it.
"""

import json
import sys

META = "io.modelcontextprotocol/"
LISTENED, CANCELLED = [], []


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(identity, text):
    send({"id": identity, "result": {"content": [{"type": "text", "text": text}]}})


def listen(identity, params):
    requested = params["notifications"]
    LISTENED.append({"id": identity, "requested": requested, "meta": sorted(params["_meta"])})
    if "resourceSubscriptions" in requested:
        requested["resourceSubscriptions"] = [uri for uri in requested["resourceSubscriptions"] if uri != "note://no"]
    told = {"notifications": requested, "_meta": {META + "subscriptionId": identity}}
    send({"method": "notifications/subscriptions/acknowledged", "params": told})


def call(identity, params):
    name, arguments = params["name"], params["arguments"]
    if name == "send":
        for message in arguments["messages"]:
            send(message)
        answer(identity, "sent")
    elif name == "seen":
        answer(identity, json.dumps({"listened": LISTENED, "cancelled": CANCELLED}))
    elif name == "meta":
        answer(identity, json.dumps(params["_meta"]))
    elif name == "exit":
        sys.exit(3)


def handle(message):
    method, identity, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "server/discover":
        feeds = {"listChanged": True}
        capabilities = {"tools": feeds, "resources": {"subscribe": True, **feeds}, "logging": {}}
        send({"id": identity, "result": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}})
    elif method == "subscriptions/listen":
        listen(identity, params)
    elif method == "tools/call":
        call(identity, params)
    elif method == "notifications/cancelled":
        CANCELLED.append(params["requestId"])
    elif identity is not None:
        send({"id": identity, "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin.buffer:
    handle(json.loads(line))

"""A legacy stdio server that sends requests to the client. `asking.py REVISION`; tools:

send {messages}            sends them unchanged, and answers
ask {messages, expect}     the same, but waits until the client has answered all ids of `expect`, and returns the answers
flood {count, method}      sends that many requests in one write, and answers
heard {}                   returns everything that the client has sent, except calls
require {elicitations}     fails with -32042 once, then answers

Standard library only, because each test starts it.
"""

import json
import sys

REVISION = sys.argv[1] if len(sys.argv) > 1 else "2025-11-25"
HEARD = []
WAITING = []
REQUIRED = set()


def send(*messages):
    data = b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in messages)
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def answer(identity, value):
    send({"id": identity, "result": {"content": [{"type": "text", "text": json.dumps(value)}]}})


def serve_waiting():
    answers = {message["id"]: message for message in HEARD if "method" not in message}
    for entry in list(WAITING):
        identity, expect = entry
        if all(key in answers for key in expect):
            WAITING.remove(entry)
            answer(identity, [answers[key] for key in expect])


def call(identity, params):
    name, arguments = params["name"], params.get("arguments", {})
    if name == "send":
        send(*arguments["messages"])
        answer(identity, "sent")
    elif name == "ask":
        WAITING.append((identity, arguments["expect"]))
        send(*arguments["messages"])
    elif name == "flood":
        send(*({"id": f"f{n}", "method": arguments["method"], "params": {}} for n in range(arguments["count"])))
        answer(identity, "flooded")
    elif name == "heard":
        answer(identity, HEARD)
    elif name == "require" and "required" not in REQUIRED:
        REQUIRED.add("required")
        data = {"elicitations": arguments["elicitations"]}
        send({"id": identity, "error": {"code": -32042, "message": "A page must be visited", "data": data}})
    elif name == "require":
        answer(identity, "done")


def handle(message):
    method, identity = message.get("method"), message.get("id")
    if method == "tools/call":
        call(identity, message["params"])
        return
    HEARD.append(message)
    if method is None:
        serve_waiting()
    elif method == "initialize":
        info = {"name": "asking", "version": "1"}
        result = {"protocolVersion": REVISION, "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": identity, "result": result})
    elif method == "tools/list":
        send({"id": identity, "result": {"tools": []}})
    elif method in ("ping", "server/discover"):
        send(
            {"id": identity, "result": {}}
            if method == "ping"
            else {"id": identity, "error": {"code": -32601, "message": "?"}}
        )


for line in sys.stdin.buffer:
    handle(json.loads(line))

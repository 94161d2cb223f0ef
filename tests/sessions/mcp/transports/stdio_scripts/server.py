"""A small legacy server for tests. Tools: echo, env, pid, exit, sleep, oversized, broken, say (lines before the answer),
progress, chatter (endless stderr), chattered (bytes of stderr so far).

Standard library only, because each test starts it.
"""

import json
import os
import sys
import threading
import time

LOCK = threading.Lock()
CANCELLED = []
CHATTERED = [0]


def send(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode())


def raw(data):
    with LOCK:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()


def answer(identity, text):
    send({"id": identity, "result": {"content": [{"type": "text", "text": text}]}})


def progress(identity, params):
    token = params.get("_meta", {}).get("progressToken")
    for step in range(1, 4):
        time.sleep(0.4)
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 3}})
    answer(identity, "done")


def sleep(identity, arguments):
    time.sleep(arguments.get("seconds", 0.2))
    answer(identity, "slept")


def chatter():
    line = b"e" * 4095 + b"\n"
    while True:
        CHATTERED[0] += os.write(2, line)


def call(identity, params):
    name, arguments = params["name"], params.get("arguments", {})
    if name == "echo":
        answer(identity, arguments.get("text", ""))
    elif name == "env":
        answer(identity, json.dumps(dict(os.environ)))
    elif name == "pid":
        answer(identity, str(os.getpid()))
    elif name == "exit":
        print("dying words", file=sys.stderr, flush=True)
        os._exit(7)
    elif name == "hang":
        pass
    elif name == "sleep":
        threading.Thread(target=sleep, args=(identity, arguments), daemon=True).start()
    elif name == "progress":
        threading.Thread(target=progress, args=(identity, params), daemon=True).start()
    elif name == "oversized":
        raw(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"' % identity + b"x" * arguments["bytes"] + b'"}}')
    elif name == "oversized-id-last":
        raw(b'{"result":{"text":"' + b"x" * arguments["bytes"] + b'"},"jsonrpc":"2.0","id":%d}' % identity)
    elif name == "anonymous-oversized":
        raw(b'{"result":{},"id":%d,"more":"' % identity + b"x" * arguments["bytes"] + b'"}')
    elif name == "broken":
        raw(arguments["line"].replace("ID", str(identity)).encode("latin-1"))
    elif name == "say":
        for line in arguments["lines"]:
            raw(line.encode())
        answer(identity, "said")
    elif name == "cancelled":
        answer(identity, json.dumps(CANCELLED))
    elif name == "ask":
        send({"id": "ask-1", "method": arguments["method"], "params": {}})
        CANCELLED.append(("waiting", identity))
    elif name == "chatter":
        threading.Thread(target=chatter, daemon=True).start()
        answer(identity, "started")
    elif name == "chattered":
        answer(identity, str(CHATTERED[0]))
    elif name == "flood":
        for number in range(arguments["lines"]):
            send({"method": "notifications/message", "params": {"level": "info", "data": number}})
        answer(identity, "flooded")


def handle(message):
    method, identity = message.get("method"), message.get("id")
    if method == "initialize" and "no-initialize" not in sys.argv:
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "script", "version": "1"}
        send(
            {
                "id": identity,
                "result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info},
            }
        )
    elif method == "tools/list":
        send({"id": identity, "result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        call(identity, message["params"])
    elif method == "server/discover" and "late-discovery" in sys.argv:
        refusal = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": ["2026-07-28"]}}
        send({"id": json.loads(sys.stdin.buffer.readline())["id"], "error": refusal})
        time.sleep(0.02)
        send({"id": identity, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
    elif method == "server/discover" and "modern" in sys.argv:
        send({"id": identity, "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}})
    elif method == "server/discover" and "dies-at-probe" in sys.argv:
        sys.stdin.buffer.readline()  # an old server whose loop has crashed; its process ends with the next message
        sys.exit(1)
    elif method == "server/discover" and "ignores-probe" in sys.argv:
        pass
    elif method == "ping":
        if "mute" not in sys.argv:
            send({"id": identity, "result": {}})
    elif method == "notifications/cancelled":
        CANCELLED.append(("cancelled", message["params"]["requestId"]))
    elif method is None and CANCELLED and CANCELLED[-1][0] == "waiting":
        answer(CANCELLED.pop()[1], json.dumps(message))
    elif identity is not None:
        send({"id": identity, "error": {"code": -32601, "message": "Method not found"}})


def log(line):
    """Print what arrived, as servers do whose authors are looking for a mistake."""
    text = line.decode().rstrip()
    raw(b'{"event": "start", "pid": 7}')
    raw(f"<-- {text}".encode())
    raw(f"[2026-11-28 12:00:00] {text}".encode())
    raw(f"[INFO] answering {text} with {{'result': {{}}}}, \"result\": true".encode())
    raw(f'{{time: 12, in: {text}, "result": null}}'.encode())
    raw(json.dumps(json.loads(text), indent=2).encode())


for line in sys.stdin.buffer:
    if "logs-messages" in sys.argv:
        log(line)
    handle(json.loads(line))
if "stays" in sys.argv:
    time.sleep(600)

"""A correct server that reveals what it received: its environment over stdio, its request's headers over HTTP.

    python telltale.py                  over stdio
    python telltale.py http [--port N]  prints its URL on stderr when ready

Tools: `tell` (as text, as structured content, and wrapped in base64), `err` (as a JSON-RPC error with data), `fail` (as
isError, and to stderr). Standard library only.
"""

import argparse
import base64
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("tell", "err", "fail")]


def _tell(given: dict[str, str]) -> dict[str, Any]:
    values = list(given.values())
    wrapped = [base64.b64encode(value.encode()).decode() for value in values]
    content = [{"type": "text", "text": text} for text in (json.dumps(given), " ".join(wrapped), repr(given))]
    content.append({"type": "resource", "resource": {"uri": "told://" + "/".join(values)[:300], "text": str(given)}})
    return {"result": {"content": content, "structuredContent": given | dict.fromkeys(values, "is a key")}}


def _fail(given: dict[str, str]) -> dict[str, Any]:
    print(f"I was given {given}", file=sys.stderr, flush=True)
    return {"result": {"content": [{"type": "text", "text": str(given)}], "isError": True}}


def _call(name: str, given: dict[str, str]) -> dict[str, Any]:
    if name == "err":
        return {"error": {"code": -32010, "message": f"I was given {given}", "data": given}}
    return _fail(given) if name == "fail" else _tell(given)


def _greeting(given: dict[str, str]) -> dict[str, Any]:
    info = {"name": "telltale", "version": "1"}
    capabilities: dict[str, Any] = {"tools": {}}
    instructions = f"I was given {given}"
    revision = "2025-11-25"
    result = {
        "protocolVersion": revision,
        "capabilities": capabilities,
        "serverInfo": info,
        "instructions": instructions,
    }
    return {"result": result}


def answer(message: dict[str, Any], given: dict[str, str]) -> dict[str, Any] | None:
    """The response; None for a notification."""
    if "id" not in message or "method" not in message:
        return None
    method = message["method"]
    if method == "initialize":
        body = _greeting(given)
    elif method == "tools/list":
        told = {"name": "described", "description": f"I was given {given}", "inputSchema": {"type": "object"}}
        body = {"result": {"tools": [*TOOLS, told]}}
    elif method == "tools/call":
        body = _call(message["params"]["name"], given)
    elif method == "ping":
        body = {"result": {}}
    else:
        body = {"error": {"code": -32601, "message": "Method not found"}}
    return {"jsonrpc": "2.0", "id": message["id"]} | body


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        told = answer(message, dict(self.headers))
        body = b"" if told is None else json.dumps(told).encode()
        self.send_response(202 if told is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve_http(port: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/mcp", file=sys.stderr, flush=True)
    server.serve_forever()


def serve_stdio() -> None:
    given = dict(os.environ)
    print(f"I was given {given}", file=sys.stderr, flush=True)
    for line in sys.stdin.buffer:
        if (told := answer(json.loads(line), given)) is not None:
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("transport", nargs="?", choices=["stdio", "http"], default="stdio")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    serve_http(options.port) if options.transport == "http" else serve_stdio()

"""A small MCP server over streamable HTTP, in a thread, that returns who called it, read from the Authorization
header."""

import json
import threading
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OBJECT = {"type": "object"}
TOOL = {"name": "whoami", "inputSchema": OBJECT}


class Whoami(ThreadingHTTPServer):
    """`opened` counts sessions by the person who opened them. `strangers` lists requests in a session that another
    person opened."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.opened: Counter[str] = Counter()
        self.owners: dict[str, str] = {}
        self.strangers: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, who: str, method: str) -> dict[str, Any]:
        if method == "initialize":
            capabilities = {"tools": {}}
            server = {"name": "whoami", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server}
        if method == "tools/list":
            return {"tools": [TOOL, {"name": f"only_for_{who}", "inputSchema": OBJECT}]}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": f"You are {who}."}]}
        return {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Whoami

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        who = self.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("token-") or "nobody"
        session = self.headers.get("Mcp-Session-Id", "")
        if body.get("method") == "initialize":
            session = uuid.uuid4().hex
            self.server.opened[who] += 1
            self.server.owners[session] = who
        elif session and self.server.owners.get(session) != who:
            self.server.strangers.append((self.server.owners.get(session, ""), who))
        if "id" not in body:
            return self._send(202, b"", session)
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": self.server.answer(who, body["method"])}
        self._send(200, json.dumps(answer).encode(), session)

    def do_GET(self) -> None:
        self._send(405, b"", "")

    do_DELETE = do_GET

    def _send(self, status: int, data: bytes, session: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass

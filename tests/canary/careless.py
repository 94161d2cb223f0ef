"""HTTP servers that fail, each in a different way, and leak what they received. One per path."""

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

_KEPT = ("authorization", "x-api-key", "x-ref")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Careless"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name = self.path.partition("?")[0].strip("/")
        self.server.requests.append((name, f"{self.path}\n{self.headers}\n".encode() + body))
        self.given = [value for key, value in self.headers.items() if key.lower() in _KEPT]
        self.words = " ".join(self.given)
        self.message = json.loads(body) if body[:1] == b"{" else {}
        SCENARIOS.get(name, _plain(404))(self)

    do_GET = do_DELETE = do_POST

    def log_message(self, format: str, *args: object) -> None:
        pass

    def reply(self, status: int, body: bytes, kind: str = "text/plain", reason: str = "", **headers: str) -> None:
        self.send_response(status, reason or None)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, **more: Any) -> None:
        body = {"jsonrpc": "2.0", "id": self.message.get("id")} | more
        self.reply(200, json.dumps(body).encode(), "application/json")

    def greet(self, **more: Any) -> None:
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        self.answer(result=result | {"serverInfo": {"name": "careless", "version": "1"}} | more)


def _plain(status: int) -> Callable[[Handler], None]:
    return lambda h: h.reply(status, h.words.encode())


def _truncated(h: Handler) -> None:
    h.send_response(200)
    h.send_header("Content-Type", "application/json")
    h.send_header("Content-Length", "100000")
    h.end_headers()
    h.wfile.write(h.words.encode())
    h.close_connection = True


def _events(h: Handler) -> None:
    h.reply(200, f"event: {h.words}\ndata: {{{h.words}\n\n".encode(), "text/event-stream")


def _listing(h: Handler) -> None:
    """Works until the client requests its tools."""
    if h.message.get("method") == "initialize":
        h.greet(instructions=h.words)
    elif "id" not in h.message:
        h.reply(202, b"")
    else:
        h.answer(error={"code": -32000, "message": h.words, "data": h.given})


def _named(h: Handler) -> None:
    if h.message.get("method") == "tools/list":
        h.answer(result={"tools": [{"name": value, "inputSchema": {"type": h.words}} for value in h.given]})
    else:
        _listing(h)


SCENARIOS: dict[str, Callable[[Handler], None]] = {
    "echo-400": _plain(400),
    "echo-403": _plain(403),
    "echo-404": _plain(404),
    "echo-500": _plain(500),
    "echo-503": _plain(503),
    "echo-401": lambda h: h.reply(
        401, b"", WWW_Authenticate=f'Bearer error="invalid_token", error_description="{quote(h.words)}"'
    ),
    "reason": lambda h: h.reply(500, b"", reason=h.words),
    "header-500": lambda h: h.reply(500, b"", X_Seen=h.words, Set_Cookie=f"seen={h.words}"),
    "base64-500": lambda h: h.reply(500, b" ".join(base64.b64encode(v.encode()) for v in h.given)),
    "hex-500": lambda h: h.reply(500, h.words.encode().hex().encode()),
    "html": lambda h: h.reply(200, f"<title>{h.words}</title>".encode(), "text/html"),
    "kind": lambda h: h.reply(200, b"{}", f"application/{h.given[0] if h.given else 'none'}"),
    "redirect": lambda h: h.reply(307, b"", Location=f"{h.server.elsewhere}/elsewhere?seen=1"),
    "malformed": lambda h: h.reply(200, f'{{"jsonrpc": "2.0", "{h.words}'.encode(), "application/json"),
    "rpc-error": lambda h: h.answer(error={"code": -32603, "message": h.words, "data": {h.words: h.given}}),
    "wrong-id": lambda h: h.reply(200, json.dumps({"jsonrpc": "2.0", "id": h.words, "result": {}}).encode(), "application/json"),
    "revision": lambda h: h.greet(protocolVersion=h.words),
    "wrong-shape": lambda h: h.answer(result={"protocolVersion": h.given, h.words: 1}),
    "truncated": _truncated,
    "events": _events,
    "listing": _listing,
    "named": _named,
}  # fmt: skip


class Careless(ThreadingHTTPServer):
    """`requests`: (path, everything received). `elsewhere`: another server, which is the target of its redirects."""

    daemon_threads = True

    def __init__(self, elsewhere: str = "") -> None:
        self.elsewhere = elsewhere
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, bytes]] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> "Careless":
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def sent(self) -> bytes:
        return b"\n".join(request for _, request in list(self.requests))

"""A scripted HTTP peer that misbehaves by URL path. Standard library only.

`/<scenario>` misbehaves from the first request; `/call-<scenario>` is a correct legacy server until a
`tools/call` arrives. `/mcp` is correct throughout. `/seen` lists every request so far as JSON, so that a
test can prove that a redirect was not followed or that a call arrived once.

    python evil_http.py [--port N]      prints its base URL on stderr when ready
"""

import argparse
import io
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from minimal import BIG_RESULT, answer

HANG_SECONDS = 600
SLOW_SECONDS = 3


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "EvilServer"

    def do_POST(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.message = self._parse()
        path = urlsplit(self.path).path.strip("/")
        if path == "seen":
            self.reply(200, "application/json", json.dumps(self.server.requests_so_far()).encode())
            return
        self.server.remember(self.command, path, self.message, dict(self.headers))
        self._scenario(path)()

    def _scenario(self, path: str) -> Callable[[], None]:
        if path.startswith("call-"):
            turned_evil = self.message.get("method") == "tools/call"
            return self._misbehave(path.removeprefix("call-")) if turned_evil else self.behave
        return self.behave if path == "mcp" else self._misbehave(path)

    def _misbehave(self, name: str) -> Callable[[], None]:
        return getattr(self, "evil_" + name.replace("-", "_"), self.evil_404)

    def _parse(self) -> dict:
        try:
            message = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return message if isinstance(message, dict) else {}

    def reply(self, status: int, content_type: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def behave(self) -> None:
        if self.command != "POST":
            self.reply(405, "text/plain", b"only POST here")
            return
        response = answer(self.message)
        if response is None:
            self.reply(202, "text/plain", b"")
            return
        self.reply(200, "application/json", json.dumps(response).encode())

    def evil_html(self) -> None:
        self.reply(200, "text/html; charset=utf-8", b"<!doctype html><title>Welcome to nginx!</title>")

    def evil_404(self) -> None:
        self.reply(404, "text/plain", b"no such page")

    def evil_401(self) -> None:
        body = b'{"error":"invalid_token"}'
        self.reply(401, "application/json", body, WWW_Authenticate='Bearer realm="evil", error="invalid_token"')

    def evil_locked(self) -> None:
        """Correct, except that the tool `locked` needs a credential. The tool `slow` takes a while."""
        called = self.message.get("params", {}).get("name") if self.message.get("method") == "tools/call" else ""
        if called == "locked":
            self.evil_401()
            return
        if called == "slow":
            time.sleep(SLOW_SECONDS)
        self.behave()

    def evil_renewed(self) -> None:
        """Correct for requests with the token `renewed`."""
        (self.behave if self.headers.get("Authorization") == "Bearer renewed" else self.evil_401)()

    def evil_403(self) -> None:
        self.reply(403, "text/plain", b"not for you")

    def evil_429(self) -> None:
        self.reply(429, "text/plain", b"slow down", Retry_After="30")

    def evil_500(self) -> None:
        self.reply(500, "text/plain", b"internal details that nobody should see")

    def evil_redirect(self) -> None:
        """Redirect with 307 to our `/mcp`, or to `?to=<url>`."""
        target = parse_qs(urlsplit(self.path).query).get("to", ["/mcp"])[0]
        self.reply(307, "text/plain", b"", Location=target)

    def evil_redirect_302(self) -> None:
        self.reply(302, "text/plain", b"", Location="/mcp")

    def evil_hang(self) -> None:
        self.server.released.wait(HANG_SECONDS)
        self.close_connection = True

    def evil_hang_after_headers(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.flush()
        self.evil_hang()

    def evil_refuse(self) -> None:
        """Reset the connection without a response (a refused connect needs a closed port: `closed_port()`)."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
        self.wfile = io.BytesIO()  # http.server flushes it again after the handler

    def evil_rubbish(self) -> None:
        self.reply(200, "application/json", b"this is } not { JSON \x00\xff")

    def evil_sse_rubbish(self) -> None:
        self.reply(200, "text/event-stream", b"event: message\ndata: {not json\n\ndata\n\n:::\n\n")

    def evil_wrong_id(self) -> None:
        response = {"jsonrpc": "2.0", "id": "somebody-else", "result": {}}
        self.reply(200, "application/json", json.dumps(response).encode())

    def evil_big(self) -> None:
        response = {"jsonrpc": "2.0", "id": self.message.get("id"), "result": {"text": "x" * BIG_RESULT}}
        self.reply(200, "application/json", json.dumps(response).encode())

    def evil_big_sse(self) -> None:
        response = {"jsonrpc": "2.0", "id": self.message.get("id"), "result": {"text": "x" * BIG_RESULT}}
        self.reply(200, "text/event-stream", b"data: " + json.dumps(response).encode() + b"\n\n")

    def evil_cut(self) -> None:
        """Promise more bytes than it sends, then close."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"jsonrpc":"2.0",')
        self.close_connection = True


class EvilServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._requests: list[dict] = []

    def remember(self, verb: str, path: str, message: dict, headers: dict[str, str]) -> None:
        entry = {"verb": verb, "path": path, "method": message.get("method"), "headers": headers}
        with self._lock:
            self._requests.append(entry)

    def requests_so_far(self) -> list[dict]:
        with self._lock:
            return list(self._requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = EvilServer(parser.parse_args().port)
    print(f"http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.released.set()


if __name__ == "__main__":
    main()

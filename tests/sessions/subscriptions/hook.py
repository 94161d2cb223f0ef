"""A webhook receiver that answers as the test says and keeps every request."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from servers.secret import Secret
from sessions.subscriptions.webhooks import signature


@dataclass(frozen=True)
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    def signed_with(self, secret: str) -> bool:
        """Check the signature as a receiver would."""
        expected = signature(Secret(secret), self.headers["webhook-id"], self.headers["webhook-timestamp"], self.body)
        return self.headers["webhook-signature"] == f"v1,{expected}"


class Hook:
    """Answers with the next of `statuses`, then with 200. Sends `body` and `headers` with each answer. Clearing `may_answer` delays all
    answers, or those at `slow_paths`; clearing `may_end` delays their bodies."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses: list[int] = []
        self.body = b""
        self.headers: dict[str, str] = {}
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.slow_paths: set[str] = set()
        self.may_end = threading.Event()
        self.may_end.set()
        self.url = ""

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.received.append(Received({name.lower(): value for name, value in request.headers.items()}, body))
        if not self.slow_paths or request.path in self.slow_paths:
            self.may_answer.wait(30)
        status = self.statuses.pop(0) if self.statuses else 200
        request.send_response(status)
        if 300 <= status < 400:
            request.send_header("Location", f"{self.url}/elsewhere")
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(self.body)))
        request.end_headers()
        request.wfile.flush()
        self.may_end.wait(30)
        request.wfile.write(self.body)


@contextmanager
def running_hook() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.take(self)

        def log_message(self, *arguments: Any) -> None:
            """Write nothing to the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.may_answer.set()
        hook.may_end.set()
        server.shutdown()
        server.server_close()

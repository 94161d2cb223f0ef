"""A webhook: it answers what the test says, and keeps what came."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from servers.secret import Secret
from sessions.domain.webhooks import signature


@dataclass(frozen=True)
class Received:
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    def signed_with(self, secret: str) -> bool:
        """As a receiver checks it."""
        expected = signature(Secret(secret), self.headers["webhook-id"], self.headers["webhook-timestamp"], self.body)
        return self.headers["webhook-signature"] == f"v1,{expected}"


class Hook:
    """`statuses`: of the answers to come, then 200; `body` is sent with each, `hold` keeps every answer back."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses: list[int] = []
        self.body = b""
        self.hold = threading.Event()
        self.hold.set()
        self.url = ""

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.received.append(Received({name.lower(): value for name, value in request.headers.items()}, body))
        self.hold.wait(30)
        status = self.statuses.pop(0) if self.statuses else 200
        request.send_response(status)
        if 300 <= status < 400:
            request.send_header("Location", f"{self.url}/elsewhere")
        request.send_header("Content-Length", str(len(self.body)))
        request.end_headers()
        request.wfile.write(self.body)


@contextmanager
def running_hook() -> Iterator[Hook]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.take(self)

        def log_message(self, *arguments: Any) -> None:
            """Not on the terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.hold.set()
        server.shutdown()
        server.server_close()

"""JSON-RPC messages as lines of UTF-8 (stdio transport, all revisions)."""

import json
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from mcpadmin.demo_server.errors import INVALID_REQUEST, PARSE_ERROR, RpcError

MAX_LINE = 8 * 1024 * 1024


class Outlet:
    """Writes whole lines from any thread; after the client is gone it swallows them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._open = True

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if not self._open:
                return
            try:
                self._stream.write(line)
                self._stream.flush()
            except (BrokenPipeError, ValueError):  # ValueError: the stream was closed while the process ends
                self._open = False

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request_id: Any, result: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def refuse(self, request_id: Any, error: RpcError) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "error": error.as_json()})


def messages(stream: BinaryIO, outlet: Outlet) -> Iterator[dict[str, Any]]:
    """Every message until the client closes its end; what is no message is refused and skipped."""
    while line := stream.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            _skip_rest(stream, line)
            outlet.refuse(None, RpcError(INVALID_REQUEST, f"A message may have at most {MAX_LINE} bytes."))
        elif line.strip():
            yield from _parse(line, outlet)


def _skip_rest(stream: BinaryIO, line: bytes) -> None:
    while line and not line.endswith(b"\n"):
        line = stream.readline(MAX_LINE)


def _parse(line: bytes, outlet: Outlet) -> Iterator[dict[str, Any]]:
    """Revision 2025-03-26 allows batches: their members are served one by one."""
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        outlet.refuse(None, RpcError(PARSE_ERROR, "This line is not JSON."))
        return
    for message in parsed if isinstance(parsed, list) else [parsed]:
        if isinstance(message, dict) and message.get("jsonrpc") == "2.0":
            yield message
        else:
            outlet.refuse(None, RpcError(INVALID_REQUEST, "This is not a JSON-RPC 2.0 message."))

"""JSON-RPC over stdio: errors, messages as lines of UTF-8, and one request in progress."""

import json
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

from mcpadmin.demo_server import eras

MAX_LINE = 8 * 1024 * 1024
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
LEGACY_RESOURCE_NOT_FOUND = -32002
UNSUPPORTED_PROTOCOL_VERSION = -32022


class RpcError(Exception):
    """The server cannot serve the request. Becomes the `error` member of the response."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def as_json(self) -> dict[str, Any]:
        body = {"code": self.code, "message": self.message}
        return body if self.data is None else body | {"data": self.data}


class Cancelled(Exception):
    """The client cancelled the request, so it gets no response."""


class LineWriter:
    """Writes whole lines from any thread. Once the client has gone, it discards them."""

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
            except (BrokenPipeError, ValueError):  # ValueError: the stream was closed while the process exits
                self._open = False

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request_id: Any, result: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def refuse(self, request_id: Any, error: RpcError) -> None:
        self.send({"jsonrpc": "2.0", "id": request_id, "error": error.as_json()})


def messages(stream: BinaryIO, outlet: LineWriter) -> Iterator[dict[str, Any]]:
    """Yield every message until the client closes its end. Refuse and skip anything that is not a JSON-RPC message."""
    while line := stream.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
            outlet.refuse(None, RpcError(INVALID_REQUEST, f"A message may have at most {MAX_LINE} bytes."))
            continue
        if not line.strip():
            continue
        try:
            parsed = json.loads(line)
        except (ValueError, RecursionError):
            outlet.refuse(None, RpcError(PARSE_ERROR, "This line is not JSON."))
            continue
        # Revision 2025-03-26 allows batches. Serve their members one by one.
        for message in parsed if isinstance(parsed, list) else [parsed]:
            if isinstance(message, dict) and message.get("jsonrpc") == "2.0":
                yield message
            else:
                outlet.refuse(None, RpcError(INVALID_REQUEST, "This is not a JSON-RPC 2.0 message."))


def checked_level(level: Any) -> str:
    if level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level. Use one of {', '.join(LEVELS)}.")
    return str(level)


class Call:
    """One request in progress: its progress, log messages and cancellation.

    With `log_level` None, the client wants no log messages. The level in a modern request's `_meta` overrides it."""

    def __init__(
        self, outlet: LineWriter, request_id: Any, params: dict[str, Any], *, version: str, log_level: str | None
    ) -> None:
        self.id, self.params, self.version = request_id, params, version
        self.modern = version in eras.MODERN
        meta = params.get("_meta")
        self._meta = meta if isinstance(meta, dict) else {}
        self._outlet, self._taken_back = outlet, threading.Event()
        if self.modern:
            level = self._meta.get(eras.LOG_LEVEL_KEY)
            log_level = None if level is None else checked_level(level)
        self._log_level = log_level

    def text(self, name: str) -> str:
        """Return the string parameter `name`. Raises RpcError when it is missing or not a string."""
        value = self.params.get(name)
        if not isinstance(value, str):
            raise RpcError(INVALID_PARAMS, f"params.{name} must be a string.")
        return value

    def progress(self, done: float, total: float, message: str) -> None:
        """Notify a client that requested progress. `message` exists since 2025-03-26; older clients ignore it."""
        token = self._meta.get("progressToken")
        if isinstance(token, (str, int)) and not isinstance(token, bool):
            params = {"progressToken": token, "progress": done, "total": total, "message": message}
            self._outlet.notify("notifications/progress", params)

    def log(self, level: str, logger: str, data: Any) -> None:
        if self._log_level is not None and LEVELS.index(level) >= LEVELS.index(self._log_level):
            self._outlet.notify("notifications/message", {"level": level, "logger": logger, "data": data})

    def cancel(self) -> None:
        self._taken_back.set()

    @property
    def is_cancelled(self) -> bool:
        return self._taken_back.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`. Raises Cancelled as soon as the client cancels the request."""
        if self._taken_back.wait(seconds):
            raise Cancelled

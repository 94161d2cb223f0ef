"""Server-sent events, and the progress of one call as an agent may receive it."""

from typing import Any, Final

from ..core import jsonrpc, methods
from ..core.flow import TokenBucket
from ..core.jsonrpc import RequestId

#: also makes a proxy forward the headers of a stream
COMMENT: Final = b":\n\n"
HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
#: suffixes of a stream's event ids: the priming event, and the response
OPENED, RESPONDED = ":0", ":1"
PROGRESS_PER_SECOND, PROGRESS_BURST = 10.0, 20


def event(message: bytes, identity: str = "") -> bytes:
    """One message. It has no line break, since JSON escapes them."""
    name = f"id: {identity}\n".encode() if identity else b""
    return b"event: message\n" + name + b"data: " + message + b"\n\n"


def priming(identity: str) -> bytes:
    """The first event of a stream that can be resumed: an id and no data. Clients before 2025-11-25 fail on it."""
    return f"id: {identity}\ndata: \n\n".encode()


def retry(milliseconds: int) -> bytes:
    return f"retry: {milliseconds}\n\n".encode()


def log_line(level: str, logger: str, data: Any) -> bytes:
    params = {"level": level, "data": data}
    return jsonrpc.notification(methods.MESSAGE, params | ({"logger": logger} if logger else {}))


class ProgressRelay:
    """Relays increasing values, at most ten per second after a burst of twenty; beyond that, only the newest."""

    def __init__(self, token: RequestId) -> None:
        self._token = token
        self._bucket = TokenBucket(PROGRESS_PER_SECOND, PROGRESS_BURST)
        self._sent: float | None = None
        self._waiting: dict[str, Any] | None = None

    def offer(self, progress: float, total: float | None, message: str | None, now: float) -> bytes | None:
        """The notification to send immediately. None if it waits for `flush` or is not new."""
        if self._sent is not None and progress <= self._sent:
            return None
        if self._waiting is not None and progress <= self._waiting["progress"]:
            return None
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        params |= {"total": total} if total is not None else {}
        self._waiting = params | ({"message": message} if message else {})
        return self.flush() if self._bucket.allow(now) else None

    @property
    def waits(self) -> bool:
        return self._waiting is not None

    def flush(self) -> bytes | None:
        """The waiting notification, to send now: before the result, or when the rate allows it."""
        if self._waiting is None:
            return None
        params, self._waiting = self._waiting, None
        self._sent = params["progress"]
        return jsonrpc.notification(methods.PROGRESS, params)

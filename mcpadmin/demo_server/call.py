"""One request being served: its progress, its log messages, its cancellation."""

import threading
from typing import Any

from mcpadmin.demo_server import eras
from mcpadmin.demo_server.errors import INVALID_PARAMS, Cancelled, RpcError
from mcpadmin.demo_server.wire import Outlet

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def checked_level(level: Any) -> str:
    if level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level; there are {', '.join(LEVELS)}.")
    return str(level)


class Call:
    """`log_level` None: the client wants no log messages."""

    def __init__(
        self, outlet: Outlet, request_id: Any, params: dict[str, Any], *, version: str, log_level: str | None
    ) -> None:
        self.id, self.params, self.version = request_id, params, version
        self.modern = version in eras.MODERN
        meta = params.get("_meta")
        self._meta = meta if isinstance(meta, dict) else {}
        self._outlet, self._taken_back = outlet, threading.Event()
        self._log_level = self._asked_level() if self.modern else log_level

    def _asked_level(self) -> str | None:
        level = self._meta.get(eras.LOG_LEVEL_KEY)
        return None if level is None else checked_level(level)

    def text(self, name: str) -> str:
        """A parameter that must be a string."""
        value = self.params.get(name)
        if not isinstance(value, str):
            raise RpcError(INVALID_PARAMS, f"params.{name} must be a string.")
        return value

    def progress(self, done: float, total: float, message: str) -> None:
        """Tells the client when it asked for progress. `message` exists since 2025-03-26; older clients ignore it."""
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
        """Raises Cancelled as soon as the client takes the request back."""
        if self._taken_back.wait(seconds):
            raise Cancelled

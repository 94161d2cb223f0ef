"""Starts threads that the process can temporarily do without."""

import threading
import time
from typing import Final

import structlog

#: at most one log line per this interval: most failed starts are retried at once
LOG_SECONDS: Final = 10.0
log = structlog.get_logger("mcpadmin.threads")
_said_at = float("-inf")


def started(thread: threading.Thread) -> bool:
    """Start the thread. Returns False if this user or container may have no more threads, or if the interpreter is
    shutting down."""
    global _said_at
    try:
        thread.start()
    except RuntimeError as problem:
        now = time.monotonic()
        if now - _said_at >= LOG_SECONDS:
            _said_at = now
            log.error("threads.not_started", thread=thread.name, problem=str(problem))
        return False
    return True

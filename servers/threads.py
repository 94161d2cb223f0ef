"""Starts threads that the process can do without for a while."""

import threading
import time
from typing import Final

import structlog

#: at most one line in this time: most of those who fail are asked again at once
LOG_SECONDS: Final = 10.0
log = structlog.get_logger("mcpadmin.threads")
_said_at = float("-inf")


def started(thread: threading.Thread) -> bool:
    """False if the system allows no more threads to this user or container, or the interpreter ends."""
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

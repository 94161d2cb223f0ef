"""`kill -USR2 <pid>` makes a web or worker process log what it holds: descriptors, threads, asyncio tasks, children."""

import asyncio
import gc
import os
import signal
import threading
from pathlib import Path
from types import FrameType

import structlog

log = structlog.get_logger("mcpadmin.diagnostics")


def holdings() -> dict[str, int]:
    """Current counts of this process. Descriptors and children are -1 where /proc does not show them."""
    # Only a walk over all objects finds the tasks of every loop; asyncio itself reports one loop at a time.
    # By type, since a proxy whose object is gone raises when it is asked for its class.
    tasks = sum(issubclass(type(found), asyncio.Task) and not found.done() for found in gc.get_objects())
    return {
        "descriptors": _count(Path("/proc/self/fd")),
        "threads": threading.active_count(),
        "tasks": tasks,
        "children": _children(),
    }


def _count(directory: Path) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:
        return -1


def _children() -> int:
    try:
        lists = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        return -1
    return sum(len(found) for found in lists)


def install() -> None:
    """Only in the main thread, where Python allows handlers; elsewhere (a server inside a test) it does nothing."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGUSR2"):
        signal.signal(signal.SIGUSR2, _log_holdings)


def _log_holdings(number: int, frame: FrameType | None) -> None:
    # Not in the handler itself: the interrupted thread may hold the lock of the log.
    threading.Thread(target=lambda: log.warning("holdings", pid=os.getpid(), **holdings()), daemon=True).start()

"""Cancelling tasks with a deadline: a task that ignores its cancellation must not keep a session or the worker from
closing."""

import asyncio
from typing import Any, Final

import structlog

END_SECONDS: Final = 15.0
log = structlog.get_logger(__name__)


async def cancel_all(*tasks: "asyncio.Future[Any] | None", seconds: float = END_SECONDS) -> bool:
    """Cancel unfinished tasks and wait for them without raising their exceptions. Returns False if one is still
    running."""
    running = {task for task in tasks if task is not None and not task.done()}
    for task in running:
        task.cancel()
    left = (await asyncio.wait(running, timeout=seconds))[1] if running else set()
    for task in left:
        log.error("host.task_not_ended", task=repr(task)[:300])
    return not left

"""Ending tasks with a deadline: one that misses its cancellation may not keep a session, or the worker, from closing."""

import asyncio
from typing import Any, Final

import structlog

END_SECONDS: Final = 15.0
log = structlog.get_logger(__name__)


async def end(*tasks: "asyncio.Future[Any] | None", seconds: float = END_SECONDS) -> bool:
    """Cancel what is not done and wait for it; what it raised is not raised here. False when something goes on."""
    running = {task for task in tasks if task is not None and not task.done()}
    for task in running:
        task.cancel()
    left = (await asyncio.wait(running, timeout=seconds))[1] if running else set()
    for task in left:
        log.error("host.task_not_ended", task=repr(task)[:300])
    return not left

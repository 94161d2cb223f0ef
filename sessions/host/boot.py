"""Starts the session host as a step of the Celery worker, so that losing the broker does not end sessions."""

from typing import Any

import structlog
from celery import bootsteps

from servers import open_files
from sessions.host.loop import HostThread

log = structlog.get_logger(__name__)


class HostStep(bootsteps.StartStopStep):
    """Starts the host before the worker takes tasks, and drains it before the process ends."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.mcp_host = None
        super().__init__(worker, **kwargs)

    def start(self, worker: Any) -> None:
        open_files.raise_limit()  # a session needs two to four
        worker.mcp_host = HostThread(worker.hostname)
        worker.mcp_host.start()

    def stop(self, worker: Any) -> None:
        self._end(worker, drain=True)

    def terminate(self, worker: Any) -> None:
        self._end(worker, drain=False)

    def _end(self, worker: Any, *, drain: bool) -> None:
        host, worker.mcp_host = worker.mcp_host, None
        if host is not None:
            if not host.stop(drain=drain):
                log.warning("host.did_not_end_in_time")
            host.forget()

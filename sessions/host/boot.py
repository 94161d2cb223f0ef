"""Starts the session host as a step of the Celery worker, so a lost broker ends no session."""

import resource
from contextlib import suppress
from typing import Any

import structlog
from celery import bootsteps

from sessions.host.loop import HostThread

DESCRIPTORS = 65_536
log = structlog.get_logger(__name__)


def more_descriptors() -> None:
    """Raise the limit of open files, up to DESCRIPTORS: a session takes two to four, and 1,024 is a common default."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, DESCRIPTORS)
    if now != resource.RLIM_INFINITY and now < limit:
        with suppress(ValueError, OSError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


class HostStep(bootsteps.StartStopStep):
    """Starts the host before the worker takes tasks, and drains it before the process ends."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        worker.mcp_host = None
        super().__init__(worker, **kwargs)

    def start(self, worker: Any) -> None:
        more_descriptors()
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

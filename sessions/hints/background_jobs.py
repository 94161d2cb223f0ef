"""One thread per process for small jobs that read rows before they wake a worker, for callers that may not wait."""

import threading
from collections import deque
from collections.abc import Callable

import structlog
from django.db import connections

from servers.threads import started

QUEUE_LIMIT = 10_000
log = structlog.get_logger(__name__)


class BackgroundJobs:
    def __init__(self) -> None:
        self._jobs: deque[Callable[[], object]] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], object]) -> None:
        with self._ready:
            if len(self._jobs) >= QUEUE_LIMIT:
                self._jobs.popleft()
            self._jobs.append(job)
            self._ready.notify()
        self.start()

    def start(self) -> None:
        with self._ready:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="hints-background-jobs", daemon=True)
                self._thread = thread if started(thread) else None  # the next job tries again

    def _run(self) -> None:
        while True:
            job = self._next()
            try:
                job()
            except Exception:  # the thread serves every caller: one bad job must not end it
                log.exception("hints.job_failed")
            finally:
                connections.close_all()  # between jobs this thread holds no connection

    def _next(self) -> Callable[[], object]:
        with self._ready:
            while not self._jobs:
                self._ready.wait()
            return self._jobs.popleft()

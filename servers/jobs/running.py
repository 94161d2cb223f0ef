"""Runs a job in a thread of a Celery worker, alongside the live sessions of the same process."""

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError

from servers.crypto import SealError
from servers.enums import JobKind
from servers.jobs import lifecycle
from servers.jobs.lifecycle import JobOutcome, Lost
from servers.models import BackgroundJob

#: one write and one hint a second are enough for a page, and a row of its own for each batch would be too much
WRITE_SECONDS = 1.0
#: after a batch a job sleeps so many times as long as the batch took: the sessions of this process have the turn
REST = 3
LONGEST_PAUSE_SECONDS = 0.1
log = structlog.get_logger(__name__)


class Stopping(Exception):
    """The worker is stopping."""


class JobProgress:
    """Called by the work after each batch: `progress(done, total)`, `total` None while unknown. Raises Lost and Stopping."""

    def __init__(self, job: BackgroundJob) -> None:
        self.job = job
        self._written = self._paused = time.monotonic()

    @property
    def result(self) -> dict[str, Any]:
        """What an earlier attempt kept."""
        return dict(self.job.result)

    def __call__(self, done: int, total: int | None = None) -> None:
        if _stopping.is_set():
            raise Stopping
        if time.monotonic() - self._written >= WRITE_SECONDS:
            lifecycle.heartbeat(self.job, done=done, total=total)
            self._written = time.monotonic()
        time.sleep(min(LONGEST_PAUSE_SECONDS, REST * (time.monotonic() - self._paused)))
        self._paused = time.monotonic()

    def keep(self, **result: Any) -> None:
        """For the next attempt, if this one is interrupted."""
        self.job.result = self.result | result
        lifecycle.heartbeat(self.job, result=self.job.result)


Work = Callable[[JobProgress], JobOutcome]
_work: dict[JobKind, Work] = {}
_stopping = threading.Event()


def does(kind: JobKind, work: Work) -> None:
    """Registers the function for this kind of job. It must be safe to run again from the beginning."""
    _work[kind] = work


def stop() -> None:
    """Have every job of this process give back its row at its next batch."""
    _stopping.set()


def run(uid: str) -> None:
    """The result is recorded in the row; a message that arrives twice, or too late, does nothing."""
    if _stopping.is_set() or (job := lifecycle.claim(uid)) is None:
        return
    try:
        lifecycle.finish(job, _outcome(job))
    except Lost:
        log.warning("jobs.lost", job=str(job.uid), kind=job.kind)
    except Stopping:
        lifecycle.give_back(job)  # no message: this worker would take it; the next one asks for what waits
    except (OperationalError, InterfaceError) as problem:
        log.warning("jobs.interrupted", job=str(job.uid), kind=job.kind, problem=type(problem).__name__)
        lifecycle.interrupt(job, "The database did not respond.")
    except DatabaseError as problem:  # tried again all the same: another process may have written what this one meets
        log.exception("jobs.refused", job=str(job.uid), kind=job.kind)
        words = f"The database refused a statement ({type(problem).__name__}). See the worker's log for the reason."
        lifecycle.interrupt(job, words)


def _outcome(job: BackgroundJob) -> JobOutcome:
    try:
        return _work[JobKind(job.kind)](JobProgress(job))
    except SealError as problem:
        return JobOutcome(False, str(problem))
    except (Lost, Stopping, DatabaseError, InterfaceError):
        raise
    except Exception as problem:  # whatever the work raised, the page says that it failed and the log says why
        log.exception("jobs.failed", job=str(job.uid), kind=job.kind)
        words = "Something went wrong. See the worker's log for the reason."
        return JobOutcome(False, words, {"error": type(problem).__name__})

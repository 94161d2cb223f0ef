"""What a worker is told: a message that only says "look at this row". A lost one costs one tick of the worker (3 s)."""

import gc
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

import structlog
from celery import current_app
from celery.utils.nodenames import worker_direct
from django.db import connections
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

Message = dict[str, Any]
Verb = Literal["call", "cancel", "session", "test", "answer", "authorize"]
QUEUE_LIMIT = 10_000
EXPIRES_SECONDS = 60.0
_UNREACHABLE = (OperationalError, RedisError, OSError)
log = structlog.get_logger(__name__)


def bell_of(worker_uid: UUID | str) -> str:
    """The group that one worker listens to."""
    return f"bell.{worker_uid}"


def message(verb: Verb, uid: UUID | str, epoch: int = 0, expires: float | None = None) -> Message:
    return {"v": 1, "verb": verb, "id": str(uid), "epoch": epoch, "expires": expires or time.time() + EXPIRES_SECONDS}


def send_task(name: str, args: list[Any], *, node: str | None, expires: float = EXPIRES_SECONDS) -> bool:
    """Send a Celery task by name, to the direct queue of `node` when one is known. Waits for Redis up to 2 s."""
    route = {"queue": worker_direct(node)} if node else {}
    try:
        current_app.send_task(name, args=args, expires=expires, retry=False, argsrepr="-", ignore_result=True, **route)
    except _UNREACHABLE as problem:
        log.warning("bus.task_not_sent", task=name, problem=type(problem).__name__)
        return _lost()
    return _reached()


_away = threading.Event()


def _lost() -> bool:
    _away.set()
    return False


def _reached() -> bool:
    """Each connection that kombu loses leaves an epoll descriptor in a cycle of references: collected when all is well."""
    if _away.is_set():
        _away.clear()
        gc.collect()
    return True


class Bell:
    """One thread that sends tasks for threads and loops that may not wait for Redis."""

    def __init__(self) -> None:
        self.dropped = 0
        self._jobs: deque[Callable[[], object]] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], object]) -> None:
        with self._ready:
            if len(self._jobs) >= QUEUE_LIMIT:
                self._jobs.popleft()
                self.dropped += 1
            self._jobs.append(job)
            self._ready.notify()
        self.start()

    def start(self) -> None:
        with self._ready:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bus-bell", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            job = self._next()
            try:
                job()
            except Exception:  # the thread serves everybody: one bad job may not end it
                log.exception("bus.bell_job_failed")
            finally:
                connections.close_all()  # a job may read rows; between jobs this thread holds no connection

    def _next(self) -> Callable[[], object]:
        with self._ready:
            while not self._jobs:
                self._ready.wait()
            return self._jobs.popleft()

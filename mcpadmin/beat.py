"""Beat, the sender of CELERY_BEAT_SCHEDULE, as a thread of a worker: `python -m mcpadmin.worker --beat-thread`.

A separate process took 49 MiB and a third of the processor time of a start. `up` passes the option to its first worker.
The schedule is in memory only: after each start everything is due, and each task asks the database whether there is
anything to do. So several beats, or one that restarts often, do no harm.
"""

import threading
import time
from typing import Any

import structlog
from celery import Celery, bootsteps
from celery.beat import Scheduler
from django.conf import settings

#: after the start of a worker; its sessions and the first pages go first
FIRST_SECONDS = 30.0
#: after a failure, or after the clock was set
AGAIN_SECONDS = 30.0
#: more than NTP corrects in small steps
SET_SECONDS = 5.0
log = structlog.get_logger("mcpadmin.beat")


class BeatStep(bootsteps.StartStopStep):
    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, beat_thread: bool = False, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self.enabled = beat_thread
        self._stopping = threading.Event()

    def start(self, worker: Any) -> None:
        arguments = (worker.app, self._stopping, settings.TIME_SCALE * FIRST_SECONDS)
        threading.Thread(target=run, args=arguments, name="beat", daemon=True).start()

    def stop(self, worker: Any) -> None:
        """Does not wait: the thread may be in the middle of connecting to a lost broker."""
        self._stopping.set()

    terminate = stop


def run(app: Celery, stopping: threading.Event, delay: float, again: float = AGAIN_SECONDS) -> None:
    """Send what is due until `stopping` is set, the first time after `delay` seconds. A failure is logged. `again` seconds
    after one, or after the clock was set, everything is due once more."""
    while not stopping.wait(delay):
        try:
            _send_what_is_due(app, stopping)
        except Exception:  # whatever it is, the sessions of this process must not suffer from it
            log.exception("beat.failed", again_after_seconds=again)
        delay = again


def _send_what_is_due(app: Celery, stopping: threading.Event) -> None:
    scheduler = Scheduler(app)  # the kind without a file. Celery's Service around it would sleep through `stopping`
    for entry in scheduler.schedule.values():
        entry.last_run_at -= entry.schedule.run_every
    begun = _clock()
    try:  # it uses wall-clock times: after the clock is set back, it would send nothing until they come around again
        while not stopping.wait(scheduler.tick()) and abs(_clock() - begun) < SET_SECONDS:
            pass
    finally:
        scheduler.close()


def _clock() -> float:
    """Constant as long as the clock is not set."""
    return time.time() - time.monotonic()

"""Progress of one call. Pushed at most ten times a second after a burst of twenty, saved at most twice a
second; beyond that, only the newest counts. Agents want each step of a short call, and a page needs only the newest."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sessions import hints
from sessions.calls import claims
from sessions.connections.lifecycle import Lease
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.calls.task_record import TaskRecord
from sessions.host.db import Database
from sessions.mcp.core.jsonrpc import RequestId
from sessions.mcp.core.tasks import Status, TaskState

#: shown while a task is not over
_TASK_WORDS = {Status.WORKING: "Runs as a task.", Status.INPUT_REQUIRED: "The task is waiting for an answer."}
PUSH_SECONDS = 0.1
PUSH_BURST = 20
SAVE_SECONDS = 0.5


class _Throttle:
    """Runs `act` at once, then at most once per interval, always with the newest state. The first `burst` runs do not
    wait for an interval."""

    def __init__(self, seconds: float, act: Callable[[], None], burst: int = 1) -> None:
        self._seconds, self._act, self._burst = seconds, act, burst
        self._timer: asyncio.TimerHandle | None = None
        self._again = False

    def trigger(self) -> None:
        if self._timer is not None:
            self._again = True
            return
        self._act()
        self._burst -= 1
        if self._burst > 0:
            return
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._over)

    def close(self) -> None:
        """Run a waiting `act` now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._again:
            self._again = False
            self._act()

    def _over(self) -> None:
        self._timer = None
        if self._again:
            self._again = False
            self.trigger()


class CallProgress:
    def __init__(self, db: Database, call: claims.PendingCall, lease: Lease, redactor: Redactor) -> None:
        self._db, self._call, self._lease, self._redactor = db, call, lease, redactor
        self._newest: tuple[float | None, float | None, str | None] = (None, None, None)
        self._saved: tuple[float | None, float | None, str | None] = (None, None, None)
        self.request_id = ""
        #: whether the server runs the call as a task
        self.has_task = False
        self._record = TaskRecord(db, call, lease)
        self._throttles = (_Throttle(PUSH_SECONDS, self._push, PUSH_BURST), _Throttle(SAVE_SECONDS, self._save))

    def __call__(self, progress: float | None, total: float | None, message: str | None) -> None:
        self._newest = (progress, total, self._masked(message) if message else message)
        for throttle in self._throttles:
            throttle.trigger()

    def _masked(self, message: str) -> str:
        return masked_words(message, self._redactor)

    def numbered(self, request_id: RequestId) -> None:
        """The request got its id; a further round of the call gets another."""
        self.request_id = str(request_id)

    def task(self, state: TaskState) -> None:
        """The call became a task: until it is over, its status is shown in place of progress messages. Its row outlives
        this worker."""
        self.has_task = True
        state = replace(state, message=self._masked(state.message))
        self._record(state)
        if not state.over:
            done, total, _ = self._newest
            self(done, total, " ".join(filter(None, (_TASK_WORDS[state.status], state.message))))

    def close(self) -> None:
        """Call before the call's final state is written, so that the last progress is saved with the call."""
        for throttle in self._throttles:
            throttle.close()

    def _push(self) -> None:
        hints.call_progress(self._call.uid, *self._newest)

    def _save(self) -> None:
        if self._newest != self._saved:  # each poll of a task brings the same words
            self._saved = self._newest
            self._db.post(partial(claims.progressed, self._call, self._lease, *self._newest))

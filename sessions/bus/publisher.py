"""One thread a process that carries hints and rings to the channel layer.

Nobody may wait for Redis, so the thread stands behind a bounded queue: a hint that cannot be sent in time is dropped and
counted, since every page reads the rows again anyway.

Each message costs sender, Redis and every web process a wake. So a hint that nobody waits for goes along with the next
one that somebody does wait for, or with others of its kind a moment later.
"""

import atexit
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import structlog
from redis.exceptions import RedisError

from sessions.bus.wire import Wire

QUEUE_LIMIT = 10_000
FLUSH_SECONDS = 1.0
#: how long a hint that nobody waits for may wait for company
COMPANY_SECONDS = 0.003
#: after a lost hint everybody is asked to look at everything: again and again until Redis takes it, and once more for
#: those who were not back by then
OWN_UP_SECONDS = 2.0
OWN_UP_TIMES = 2
LOST = "lost"
#: the one group of all web processes; a group a topic would cost a round trip for each page and each call
GROUP = "hints"
HINTS_TOGETHER = 200
#: of one worker; it looks at each row, so more in one message would only wait there
RINGS_TOGETHER = 100
_NEWEST_ONLY = frozenset({"progress"})

Hint = dict[str, Any]
Message = dict[str, Any]
Ring = tuple[str, Message]
log = structlog.get_logger(__name__)


def merged(hints: list[Hint]) -> list[Hint]:
    """Without those that a later one makes superfluous: of equal (topic, kind, subject) only the newest."""
    newest: dict[tuple[str, str, str], Hint] = {}
    for hint in hints:
        subject = "" if hint["kind"] in _NEWEST_ONLY else repr(hint["rows"])
        newest.pop(key := (hint["t"], hint["kind"], subject), None)
        newest[key] = hint
    return list(newest.values())


def batched(items: list[Any], most: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def messages(rings: list[Ring], hints: list[Hint]) -> Iterator[tuple[str, Message]]:
    """(group, message). Rings go before hints: somebody waits for what they start."""
    of_worker: dict[str, list[Message]] = {}
    for bell, ring in rings:
        of_worker.setdefault(bell, []).append(ring)
    for bell, rung in of_worker.items():
        for some in batched(rung, RINGS_TOGETHER):
            yield bell, {"type": "rings", "rings": some}
    for some in batched(merged(hints), HINTS_TOGETHER):
        yield GROUP, {"type": "hints", "hints": some}


class Publisher:
    def __init__(self) -> None:
        self.dropped = 0
        self._rings: deque[Ring] = deque()
        self._urgent: deque[Hint] = deque()
        self._patient: deque[Hint] = deque()
        self._patient_until = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._failing = False
        self._owed = 0

    def put(self, hint: Hint, *, patient: bool = False) -> None:
        """`patient`: nobody waits for it."""
        self._put(self._patient if patient else self._urgent, hint)

    def ring(self, bell: str, message: Message) -> None:
        """To one worker."""
        self._put(self._rings, (bell, message))

    def _put(self, queue: deque[Any], item: Any) -> None:
        with self._changed:
            if len(queue) >= QUEUE_LIMIT:
                queue.popleft()
                self.dropped += 1
            if queue is self._patient and not queue:
                self._patient_until = time.monotonic() + COMPANY_SECONDS
            queue.append(item)
            self._idle.clear()
            if queue is not self._patient or len(queue) == 1:  # else the thread knows when to look
                self._changed.notify()
        self.start()

    def start(self) -> None:
        with self._changed:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="bus-publisher", daemon=True)
            self._thread.start()
        atexit.register(self.flush)

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything put so far was sent or given up; False when that took longer than `seconds`."""
        return self._thread is None or self._idle.wait(seconds)

    # --- the thread ----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        wire = Wire()
        while True:
            self._send(wire, *self._next())

    def _next(self) -> tuple[list[Ring], list[Hint]]:
        """Waits until there is something to send: rings, hints, or the word that some were lost."""
        with self._changed:
            while True:
                taken = self._take()
                if any(taken):
                    return taken
                if not self._patient:
                    self._idle.set()
                if not self._changed.wait(self._rest_seconds()) and not self._patient:
                    self._owed -= 1
                    return [], [{"t": LOST, "seq": None, "kind": LOST, "rows": None}]

    def _rest_seconds(self) -> float | None:
        if self._patient:
            return max(0.0, self._patient_until - time.monotonic())
        return OWN_UP_SECONDS if self._owed else None

    def _take(self) -> tuple[list[Ring], list[Hint]]:
        """What is due now."""
        rings, hints = list(self._rings), list(self._urgent)
        self._rings.clear()
        self._urgent.clear()
        if self._patient and (hints or time.monotonic() >= self._patient_until):
            hints += self._patient
            self._patient.clear()
        return rings, hints

    def _send(self, wire: Wire, rings: list[Ring], hints: list[Hint]) -> None:
        try:
            wire.send(messages(rings, hints))
        except (RedisError, OSError) as problem:
            self.dropped += len(rings) + len(hints)
            self._owed = OWN_UP_TIMES
            self._tell(problem)
        except Exception:  # a hint that cannot be written must not end the thread
            log.exception("bus.hint_not_sent")
        else:
            self._tell(None)

    def _tell(self, problem: Exception | None) -> None:
        """One line when Redis goes and one when it is back, not one a hint."""
        if self._failing != (problem is not None):
            self._failing = problem is not None
            if problem is None:
                log.info("bus.hints_flow_again", dropped=self.dropped)
            else:
                log.warning("bus.hint_lost", problem=type(problem).__name__)

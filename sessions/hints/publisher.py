"""Carries hints and wake-ups to the channel layer.

No caller may wait for Redis, so a separate thread serves a bounded queue: a hint that cannot be sent in time is
dropped, since every page reads the rows again anyway.

Most hints come from commit hooks, in the audit writer's thread. It sends them itself right after the batch: handing
them to another thread costs more than a message to Redis. When Redis does not answer within INLINE_SECONDS, the
publisher's thread takes over until it has reached Redis again.

Each message wakes the sender, Redis and every web process. So a hint that no one waits for is sent with the next one
that is waited for, or with others of its kind a moment later.
"""

import atexit
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import structlog
from redis.exceptions import RedisError

from servers.threads import started
from sessions.hints.group_sender import GroupSender
from sessions.hints.outage import outage

QUEUE_LIMIT = 10_000
FLUSH_SECONDS = 1.0
#: the longest that a thread which sends inline waits for Redis, once per outage
INLINE_SECONDS = 0.1
#: how long a hint that no one waits for may wait for others to be sent with; half the window of a live list
BATCH_SECONDS = 0.05
#: after a lost hint, every process is asked to compare everything: repeatedly until Redis accepts that request, and
#: once more for processes that were not back by then
LOSS_NOTICE_SECONDS = 2.0
LOSS_NOTICES = 2
LOST = "lost"
#: the one group of all web processes; a group per topic would cost a round trip for each page and each call
GROUP = "hints"
HINTS_TOGETHER = 200
#: for one worker; it looks at each row, so more in one message would only wait there
WAKES_TOGETHER = 100
#: the rows of a hint that the next one, expected at once, replaces
PASSING = [{"passing": True}]

Hint = dict[str, Any]
Message = dict[str, Any]
Wake = tuple[str, Message]
log = structlog.get_logger(__name__)


def merged(hints: list[Hint]) -> list[Hint]:
    """The hints without those that a later one makes obsolete: for each (topic, kind, subject), only the newest."""
    newest: dict[tuple[str, str, str], Hint] = {}
    for hint in hints:
        rows = hint["rows"]
        subject = "" if rows is None or rows == PASSING else repr(rows)
        key = (hint["t"], hint["kind"], subject)
        if rows == PASSING and key in newest:
            continue
        newest.pop(key, None)
        newest[key] = hint
    return list(newest.values())


def batched(items: list[Any], most: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def messages(wakes: list[Wake], hints: list[Hint]) -> Iterator[tuple[str, Message]]:
    """(group, message). Wake-ups go before hints: a caller waits for what they start."""
    of_worker: dict[str, list[Message]] = {}
    for group, wake in wakes:
        of_worker.setdefault(group, []).append(wake)
    for group, woken in of_worker.items():
        for some in batched(woken, WAKES_TOGETHER):
            yield group, {"type": "wakes", "wakes": some}
    for some in batched(merged(hints), HINTS_TOGETHER):
        yield GROUP, {"type": "hints", "hints": some}


class Publisher:
    def __init__(self) -> None:
        self._wakes: deque[Wake] = deque()
        self._urgent: deque[Hint] = deque()
        self._deferred: deque[Hint] = deque()
        self._deferred_until = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._sending = 0
        self._loss_notices_due = 0
        #: each thread that calls `send_inline` has its own `wire`
        self._inline = threading.local()
        self._reachable = True

    def put(self, hint: Hint, *, deferred: bool = False) -> None:
        """`deferred`: no one is waiting for it."""
        self._put(self._deferred if deferred else self._urgent, hint)

    def wake(self, group: str, message: Message) -> None:
        """Send a message to one worker."""
        self._put(self._wakes, (group, message))

    def _put(self, queue: deque[Any], item: Any) -> None:
        with self._changed:
            if len(queue) >= QUEUE_LIMIT:
                queue.popleft()
            if queue is self._deferred and not queue:
                self._deferred_until = time.monotonic() + BATCH_SECONDS
            queue.append(item)
            self._idle.clear()
            if self._reachable and hasattr(self._inline, "wire"):
                return  # this thread is about to call `send_inline`
            if queue is not self._deferred or len(queue) == 1:  # otherwise the thread already knows when to look
                self._changed.notify()
        self.start()

    def send_inline(self) -> float | None:
        """Send what is due in the calling thread, which from now on must call this each time after it puts something.
        Return the seconds until the rest is due; None: nothing is left, or the publisher's thread handles it."""
        if not hasattr(self._inline, "wire"):
            self._inline.wire = GroupSender(INLINE_SECONDS)
        with self._changed:
            wakes, hints = self._take() if self._reachable else ([], [])
            self._sending += 1
        try:
            if (wakes or hints) and not self._inline.wire.send(messages(wakes, hints)):
                self._some_are_lost()
        except (RedisError, OSError):
            with self._changed:
                self._reachable = False
                self._wakes.extendleft(reversed(wakes))
                self._urgent.extendleft(reversed(hints))
        except Exception:  # a bug of ours must not end the thread
            log.exception("hints.not_sent")
            self._some_are_lost()
        with self._changed:
            self._sending -= 1
            left = bool(self._wakes or self._urgent or self._deferred)
            if not left and not self._sending:
                self._idle.set()
            if self._reachable:
                return self._rest_seconds() if self._deferred else None
            self._changed.notify()
        if left:
            self.start()
        return None

    def _some_are_lost(self) -> None:
        """The publisher's thread tells all pages to compare what they show."""
        with self._changed:
            self._loss_notices_due = LOSS_NOTICES
            self._changed.notify()
        self.start()

    def start(self) -> None:
        with self._changed:
            if self._thread is not None and self._thread.is_alive():
                return
            thread = threading.Thread(target=self._run, name="hints-publisher", daemon=True)
            if not started(thread):
                return  # the next queued hint tries again
            self._thread = thread
        atexit.register(self.flush)

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything put so far has been sent or given up; False if that takes longer than `seconds`."""
        return self._idle.wait(seconds)

    # --- the thread ----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        wire = GroupSender()
        while True:
            self._send(wire, *self._next())

    def _next(self) -> tuple[list[Wake], list[Hint]]:
        """Waits until there is something to send: wake-ups, hints, or the notice that some were lost."""
        with self._changed:
            while True:
                taken = self._take()
                if any(taken):
                    self._sending += 1
                    return taken
                if not self._deferred and not self._sending:
                    self._idle.set()
                if not self._changed.wait(self._rest_seconds()) and not self._deferred and self._loss_notices_due:
                    self._loss_notices_due -= 1
                    self._sending += 1
                    return [], [{"t": LOST, "seq": None, "kind": LOST, "rows": None}]

    def _rest_seconds(self) -> float | None:
        if self._deferred:
            return max(0.0, self._deferred_until - time.monotonic())
        return LOSS_NOTICE_SECONDS if self._loss_notices_due else None

    def _take(self) -> tuple[list[Wake], list[Hint]]:
        """What is due now."""
        wakes, hints = list(self._wakes), list(self._urgent)
        self._wakes.clear()
        self._urgent.clear()
        if self._deferred and (hints or time.monotonic() >= self._deferred_until):
            hints += self._deferred
            self._deferred.clear()
        return wakes, hints

    def _send(self, wire: GroupSender, wakes: list[Wake], hints: list[Hint]) -> None:
        try:
            if not wire.send(messages(wakes, hints)):
                self._some_are_lost()
            self._reachable = True
        except (RedisError, OSError) as problem:
            self._reachable = False
            self._some_are_lost()
            outage.noticed(problem)
        except Exception:  # a bug of ours must not end the thread
            log.exception("hints.not_sent")
            self._some_are_lost()
        finally:
            with self._changed:
                self._sending -= 1

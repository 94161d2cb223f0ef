"""One thread a process that carries hints to the channel layer.

The layer has no time-out of its own and a loop may not wait for it, so it stands behind a bounded queue: a hint that
cannot be sent in time is dropped and counted, since every page reads the rows again anyway.
"""

import asyncio
import atexit
import threading
from collections import deque
from typing import Any

import structlog
from channels.layers import get_channel_layer

QUEUE_LIMIT = 10_000
SEND_SECONDS = 2.0
FLUSH_SECONDS = 1.0
#: after a lost hint everybody is asked to look at everything: again and again until Redis takes it, and once more for
#: those who were not back by then
OWN_UP_SECONDS = 2.0
OWN_UP_TIMES = 2
LOST = "lost"
#: the one group of all web processes; a group a topic would cost a round trip for each page and each call
GROUP = "hints"
HINTS_TOGETHER = 200
_NEWEST_ONLY = frozenset({"progress"})

Hint = dict[str, Any]
log = structlog.get_logger(__name__)


def merged(hints: list[Hint]) -> list[Hint]:
    """Without those that a later one makes superfluous: of equal (topic, kind, subject) only the newest."""
    newest: dict[tuple[str, str, str], Hint] = {}
    for hint in hints:
        subject = "" if hint["kind"] in _NEWEST_ONLY else repr(hint["rows"])
        newest.pop(key := (hint["t"], hint["kind"], subject), None)
        newest[key] = hint
    return list(newest.values())


class Publisher:
    def __init__(self) -> None:
        self.dropped = 0
        self._queue: deque[Hint] = deque()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._idle = threading.Event()
        self._failing = False
        self._owed = 0

    def put(self, hint: Hint) -> None:
        with self._guard:
            if len(self._queue) >= QUEUE_LIMIT:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(hint)
            self._idle.clear()
            first = len(self._queue) == 1
        self.start()
        if first:
            self._nudge()

    def start(self) -> None:
        with self._guard:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="bus-publisher", daemon=True)
            self._thread.start()
        atexit.register(self.flush)

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything put so far was sent or given up; False when that took longer than `seconds`."""
        return self._thread is None or self._idle.wait(seconds)

    def _nudge(self) -> None:
        if self._loop is not None and self._wake is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._wake, self._loop = asyncio.Event(), asyncio.get_running_loop()
        while True:
            hints = self._take()
            if not hints:
                await self._rest(self._wake)
                continue
            kept = merged(hints)
            for start in range(0, len(kept), HINTS_TOGETHER):
                await self._send(kept[start : start + HINTS_TOGETHER])

    async def _rest(self, wake: asyncio.Event) -> None:
        """Until there is something to send: a new hint, or the word that some were lost."""
        try:
            await asyncio.wait_for(wake.wait(), OWN_UP_SECONDS if self._owed else None)
        except TimeoutError:
            self._owed -= 1
            await self._send([{"t": LOST, "seq": None, "kind": LOST, "rows": None}])
        wake.clear()

    def _take(self) -> list[Hint]:
        with self._guard:
            hints = list(self._queue)
            self._queue.clear()
            if not hints:
                self._idle.set()
            return hints

    async def _send(self, hints: list[Hint]) -> None:
        layer = get_channel_layer()
        try:
            await asyncio.wait_for(layer.group_send(GROUP, {"type": "hints", "hints": hints}), SEND_SECONDS)
        except Exception as problem:  # whatever the layer raises, a lost hint must not end the thread
            self.dropped += len(hints)
            self._owed = OWN_UP_TIMES
            self._tell(problem)
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

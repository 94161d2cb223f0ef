"""One thread a process that carries hints and rings to the channel layer.

The layer has no time-out of its own and a loop may not wait for it, so it stands behind a bounded queue: a hint that
cannot be sent in time is dropped and counted, since every page reads the rows again anyway.
"""

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Iterator
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
#: of one worker; it looks at each row, so more in one message would only wait there
RINGS_TOGETHER = 100
_NEWEST_ONLY = frozenset({"progress"})

Hint = dict[str, Any]
Message = dict[str, Any]
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


class Publisher:
    def __init__(self) -> None:
        self.dropped = 0
        self._queue: deque[Hint] = deque()
        self._rings: deque[tuple[str, Message]] = deque()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._idle = threading.Event()
        self._failing = False
        self._owed = 0

    def put(self, hint: Hint) -> None:
        self._put(self._queue, hint)

    def ring(self, bell: str, message: Message) -> None:
        """To one worker. Rings go before hints: somebody waits for what they start."""
        self._put(self._rings, (bell, message))

    def _put(self, queue: deque[Any], item: Any) -> None:
        with self._guard:
            if len(queue) >= QUEUE_LIMIT:
                queue.popleft()
                self.dropped += 1
            queue.append(item)
            self._idle.clear()
            first = len(self._queue) + len(self._rings) == 1
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
            rings, hints = self._take()
            if not rings and not hints:
                await self._rest(self._wake)
                continue
            for bell, messages in rings.items():
                for some in batched(messages, RINGS_TOGETHER):
                    await self._send(bell, {"type": "rings", "rings": some})
            for some in batched(merged(hints), HINTS_TOGETHER):
                await self._send(GROUP, {"type": "hints", "hints": some})

    async def _rest(self, wake: asyncio.Event) -> None:
        """Until there is something to send: a new hint, or the word that some were lost."""
        try:
            async with asyncio.timeout(OWN_UP_SECONDS if self._owed else None):
                await wake.wait()
        except TimeoutError:
            self._owed -= 1
            await self._send(GROUP, {"type": "hints", "hints": [{"t": LOST, "seq": None, "kind": LOST, "rows": None}]})
        wake.clear()

    def _take(self) -> tuple[dict[str, list[Message]], list[Hint]]:
        with self._guard:
            hints, rings = list(self._queue), list(self._rings)
            self._queue.clear()
            self._rings.clear()
            if not hints and not rings:
                self._idle.set()
        of_worker: dict[str, list[Message]] = {}
        for bell, message in rings:
            of_worker.setdefault(bell, []).append(message)
        return of_worker, hints

    async def _send(self, group: str, message: dict[str, Any]) -> None:
        layer = get_channel_layer()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await layer.group_send(group, message)
        except Exception as problem:  # whatever the layer raises, a lost hint must not end the thread
            self.dropped += len(message["hints"] if group == GROUP else message["rings"])
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

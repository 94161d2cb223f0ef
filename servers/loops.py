"""What other threads found out for an event loop, with as few wake-ups of the loop as possible.

`call_soon_threadsafe` writes to the loop's pipe each time, and with that the calling thread hands the interpreter to the
loop. Under load several results wait already when the loop comes to them, and one wake-up serves them all.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread, local
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deliveries:
    """Runs functions of other threads in one loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[Callable[[], None]] = deque()
        self._woken = False

    def put(self, deliver: Callable[[], None]) -> None:
        """From any thread. `deliver` must not raise."""
        self._due.append(deliver)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._woken = False  # before the look: whoever puts something later wakes the loop again
        for _ in range(len(self._due)):
            self._due.popleft()()
        if self._due and not self._woken:
            self._woken = True
            self._loop.call_soon(self._run)


_of_thread = local()


def deliveries() -> Deliveries:
    """Those of the running loop. A thread runs one at a time."""
    loop = asyncio.get_running_loop()
    if getattr(_of_thread, "loop", None) is not loop:
        _of_thread.loop, _of_thread.deliveries = loop, Deliveries(loop)
    found: Deliveries = _of_thread.deliveries
    return found


async def result_of(future: "Future[T]") -> T:
    """As `asyncio.wrap_future`: whoever stops waiting also cancels `future`."""
    mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    _settled_by(future, mine, deliveries())
    try:
        return await mine
    except asyncio.CancelledError:
        future.cancel()
        raise


def _settled_by(future: "Future[T]", mine: "asyncio.Future[T]", own: Deliveries) -> None:
    future.add_done_callback(lambda _: own.put(partial(_settle, mine, future)))


def _settle(mine: "asyncio.Future[T]", future: "Future[T]") -> None:
    if mine.done():
        return
    if future.cancelled():
        mine.cancel()
    elif (problem := future.exception()) is not None:
        mine.set_exception(problem)
    else:
        mine.set_result(future.result())


class Handed(Generic[T]):
    """Work that a job handed on to another thread. The loop is woken once, with the `result` of both."""

    def __init__(self) -> None:
        self.result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        #: that of the other thread, and when it was handed on (time.monotonic); None until then
        self.future: Future[T] | None = None
        self.since = 0.0
        self._own = deliveries()

    @classmethod
    def of(cls, future: "Future[T]") -> "Handed[T]":
        handed: Handed[T] = cls()
        handed.on(future)
        return handed

    def on(self, future: "Future[T]") -> None:
        self.since, self.future = time.monotonic(), future  # in this order: the loop looks at the future first
        _settled_by(future, self.result, self._own)

    def fail(self, problem: BaseException) -> None:
        self._own.put(lambda: None if self.result.done() else self.result.set_exception(problem))


class JobThreads:
    """A few threads that run jobs for loops. They start with the first job and never end. A job that nobody waits for any
    more is not begun."""

    def __init__(self, count: int, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], None], asyncio.Future[Any]]] = SimpleQueue()
        self._count, self._name = count, name
        self._started = False

    async def run(self, job: Callable[[], T]) -> T:
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._put(partial(_report, job, mine, deliveries()), mine)
        return await mine

    def hand_on(self, job: Callable[[], "Future[T]"]) -> Handed[T]:
        """For a job that only begins the work."""
        handed: Handed[T] = Handed()
        self._put(partial(_hand_on, job, handed), handed.result)
        return handed

    def _put(self, work: Callable[[], None], mine: "asyncio.Future[Any]") -> None:
        self._jobs.put((work, mine))
        if not self._started:
            self._started = True
            for number in range(self._count):
                Thread(target=self._serve, name=f"{self._name}_{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            work, mine = self._jobs.get()
            if not mine.cancelled():
                work()
            del work, mine  # nothing is kept alive while the thread waits


def _report(job: Callable[[], T], mine: "asyncio.Future[T]", own: Deliveries) -> None:
    try:
        result = job()
    except BaseException as exc:  # whatever it is, the waiting coroutine handles it
        problem = exc
        own.put(lambda: None if mine.done() else mine.set_exception(problem))
    else:
        own.put(lambda: None if mine.done() else mine.set_result(result))


def _hand_on(job: Callable[[], "Future[T]"], handed: Handed[T]) -> None:
    try:
        future = job()
    except BaseException as exc:  # the same
        handed.fail(exc)
    else:
        handed.on(future)

"""What other threads found out for an event loop, with as few wake-ups of the loop as possible.

`call_soon_threadsafe` writes to the loop's pipe each time, and with that the calling thread hands the interpreter to the
loop. Under load several results wait already when the loop comes to them, and one wake-up serves them all.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, local
from typing import Any, TypeVar

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


async def result_of(future: "Future[T]", *, cancels: bool = True) -> T:
    """As `asyncio.wrap_future`. `cancels`: whoever stops waiting also cancels `future`."""
    mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    own = deliveries()

    def settle() -> None:
        if mine.done():
            return
        if future.cancelled():
            mine.cancel()
        elif (problem := future.exception()) is not None:
            mine.set_exception(problem)
        else:
            mine.set_result(future.result())

    future.add_done_callback(lambda _: own.put(settle))
    try:
        return await mine
    except asyncio.CancelledError:
        if cancels:
            future.cancel()
        raise


class JobThreads:
    """A few threads that run jobs for loops. They start with the first job and never end."""

    def __init__(self, count: int, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any], Deliveries]] = SimpleQueue()
        self._count, self._name = count, name
        self._started = False

    async def run(self, job: Callable[[], T]) -> T:
        """A job that nobody waits for any more is not begun."""
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, mine, deliveries()))
        if not self._started:
            self._start()
        return await mine

    def _start(self) -> None:
        self._started = True
        for number in range(self._count):
            Thread(target=self._serve, name=f"{self._name}_{number}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job, mine, own = self._jobs.get()
            if not mine.cancelled():
                own.put(_outcome(job, mine))
            del job, mine, own  # nothing is kept alive while the thread waits


def _outcome(job: Callable[[], T], mine: "asyncio.Future[T]") -> Callable[[], None]:
    """Runs `job`. Returns what tells the loop."""
    try:
        result = job()
    except BaseException as exc:  # whatever it is, the waiting coroutine handles it
        problem = exc
        return lambda: None if mine.done() else mine.set_exception(problem)
    return lambda: None if mine.done() else mine.set_result(result)

"""Many deadlines on one timer of the event loop.

`asyncio.timeout` sets and cancels a timer for each wait, which costs as much as encoding a small request as JSON.
"""

import asyncio
import math
import weakref
from types import TracebackType


class Deadlines:
    """One timer for all current waits. When the wait that it was set for ends early, the timer still fires, and is then
    set for the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: the current waits
        self.waits: set[Wait] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: loop time of the timer, infinite without one
        self.wakes_at = math.inf

    def at(self, when: float | None) -> "Wait":
        """A wait that ends with TimeoutError at this loop time; None: no deadline until it is rescheduled."""
        return Wait(self, when)

    def note(self, when: float) -> None:
        """Make sure that the timer fires by then."""
        if when < self.wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self.wakes_at = when
            self._timer = self.loop.call_at(when, _wake, weakref.ref(self))

    def look(self) -> None:
        """End the waits whose deadline has passed, and set the timer for the next one."""
        self._timer, self.wakes_at = None, math.inf
        now = self.loop.time()
        over = [wait for wait in self.waits if wait.ends <= now]
        for wait in sorted(over, key=lambda wait: wait.ends):
            self.waits.discard(wait)
            wait.expire()
        if self.waits:
            self.note(min(wait.ends for wait in self.waits))


def _wake(reference: "weakref.ref[Deadlines]") -> None:
    """The timer may outlive the client by minutes and must not keep it alive."""
    deadlines = reference()
    if deadlines is not None:
        deadlines.look()


class Wait:
    """A `with` block of one task, with the semantics of `asyncio.timeout`: the task is cancelled at the deadline, and
    that cancellation, if there was no other, leaves the block as TimeoutError."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_task", "ends")

    def __init__(self, deadlines: Deadlines, when: float | None) -> None:
        self._deadlines = deadlines
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._expired = False
        #: loop time, infinite for none
        self.ends = math.inf if when is None else when

    def waits(self) -> bool:
        """Whether its task is inside the block."""
        return self._task is not None

    def expired(self) -> bool:
        return self._expired

    def when(self) -> float | None:
        return None if math.isinf(self.ends) else self.ends

    def reschedule(self, when: float | None) -> None:
        """Set another deadline; one in the past ends the wait in the next iteration of the loop."""
        self.ends = math.inf if when is None else when
        self._deadlines.note(self.ends)

    def expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> "Wait":
        self._task = task = asyncio.current_task(self._deadlines.loop)
        if task is None:
            raise RuntimeError("a wait belongs to a task")
        self._cancelling = task.cancelling()
        self._deadlines.waits.add(self)
        if self.ends < self._deadlines.wakes_at:
            self._deadlines.note(self.ends)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.waits.discard(self)
        task, self._task = self._task, None  # the task's frames refer to this wait: it must not keep the task alive
        if not self._expired or task is None:
            return
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

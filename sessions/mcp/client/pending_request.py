"""One pending request: what was sent, and how long it may still take."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.correlation import Deadline
from ..core.errors import Fault, TransportError
from ..core.headers import Mirrored
from ..core.jsonrpc import RequestId
from ..core.on_behalf import OnBehalf
from ..core.session import Answered, Outgoing
from .deadlines import Deadlines, Wait

Numbered = Callable[[RequestId], None]
OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(slots=True, eq=False)
class RequestSpec:
    """A request to make. `idle` and `total` are seconds; `numbered` is called with the request's id as soon as it has
    one; `before` is awaited right before its bytes are sent; `meta` are the caller's own entries of `_meta`."""

    method: str
    params: dict[str, Any] | None
    idle: float
    total: float
    tag: Any = None
    on_progress: OnProgress | None = None
    numbered: Numbered | None = None
    before: Callable[[], Awaitable[None]] | None = None
    #: awaited with the reason before the transport itself sends it again
    before_repeat: Callable[[str], Awaitable[None]] | None = None
    mirrored: tuple[Mirrored, ...] = ()
    meta: Mapping[str, Any] | None = None
    on_behalf: OnBehalf | None = None

    @property
    def wants_task(self) -> bool:
        """2025-11-25: whether the server is asked to make it a task."""
        return self.params is not None and "task" in self.params


class PendingRequest(Wait):
    """A request whose caller waits for the answer: `with` it, from `begin()` until the answer is there."""

    __slots__ = ("_held", "_left", "deadline", "future", "outgoing", "spec")

    def __init__(
        self, deadlines: Deadlines, spec: RequestSpec, outgoing: Outgoing, future: "asyncio.Future[Answered]"
    ) -> None:
        super().__init__(deadlines, None)
        self.spec = spec
        self.outgoing = outgoing
        self.future = future
        self.deadline: Deadline | None = None
        #: how many questions of the server are being answered meanwhile, and the idle seconds left over
        self._held = 0
        self._left = 0.0

    def begin(self, now: float) -> Deadline:
        """Both times start now."""
        self.deadline = deadline = Deadline.starting(now, self.spec.idle, self.spec.total)
        self.ends = deadline.expires_at
        return deadline

    @property
    def is_answered(self) -> bool:
        return self.future.done() and not self.future.cancelled()

    @property
    def is_due(self) -> bool:
        """Whether the peer owes an answer: not while we answer a question of its own, nor without a deadline."""
        return self.outgoing.left and not self.outgoing.answered and not self._held and self.when() is not None

    def resolve(self, answered: Answered) -> None:
        self.outgoing.answered = True
        if not self.future.done():
            self.future.set_result(answered)

    def until(self, when: float | None) -> None:
        """Wait until then, unless the wait is over already."""
        if self.waits() and not self.expired() and not self.future.done():
            self.reschedule(when)

    def extend(self, now: float) -> None:
        """Progress: restart the idle time."""
        if self.deadline is None:
            return
        if self._held:
            self._left = self.deadline.idle
        else:
            self.until(self.deadline.extend(now))

    def hold(self, now: float) -> None:
        """Pause the idle time while we work on an answer ourselves; the total time keeps running."""
        self._held += 1
        if self._held == 1 and self.deadline is not None:
            self._left = self.deadline.left(now)
            self.deadline.expires_at = self.deadline.total_at
            self.until(self.deadline.total_at)

    def release(self, now: float) -> None:
        self._held -= 1
        if not self._held and self.deadline is not None:
            self.until(self.deadline.resume(now, self._left))

    def out_of_time(self, deadline: Deadline) -> TransportError:
        """The idle timeout, or (if they differ) the total one, which progress does not extend."""
        spec = self.spec
        if spec.total != spec.idle and deadline.expires_at >= deadline.total_at:
            fault, words = Fault.TOTAL_DEADLINE, f"within the total timeout of {spec.total:g} s"
        else:
            fault, words = Fault.TIMEOUT, f"in time ({spec.idle:g} s)"
        left = self.outgoing.left
        what = f"The server did not answer {spec.method}" if left else f"{spec.method} could not be sent"
        return TransportError(fault, f"{what} {words}.", may_have_run=left)

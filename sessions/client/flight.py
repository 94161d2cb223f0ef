"""One request under way: what was asked, and how long it may still take."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocol.correlation import Deadline
from ..protocol.errors import Fault, TransportError
from ..protocol.headers import Mirrored
from ..protocol.jsonrpc import RequestId
from ..protocol.session import Answered, Outgoing
from .deadlines import Wait

OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(slots=True, eq=False)
class Ask:
    """A request to make. `idle` and `total` are seconds; `before` is awaited right before its bytes leave; `meta`
    are the caller's own entries of `_meta`."""

    method: str
    params: dict[str, Any] | None
    idle: float
    total: float
    identity: RequestId | None = None
    tag: Any = None
    on_progress: OnProgress | None = None
    before: Callable[[], Awaitable[None]] | None = None
    #: awaited with the reason before the transport itself sends it once more
    before_repeat: Callable[[str], Awaitable[None]] | None = None
    mirrored: tuple[Mirrored, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


class Flight:
    """Someone waits for an answer."""

    __slots__ = ("_held", "_left", "ask", "deadline", "future", "outgoing", "scope")

    def __init__(self, ask: Ask, outgoing: Outgoing, future: "asyncio.Future[Answered]") -> None:
        self.ask = ask
        self.outgoing = outgoing
        self.future = future
        self.deadline: Deadline | None = None
        self.scope: Wait | None = None
        #: how many questions of the server are being answered meanwhile, and the idle seconds left over
        self._held = 0
        self._left = 0.0

    def resolve(self, answered: Answered) -> None:
        self.outgoing.answered = True
        if not self.future.done():
            self.future.set_result(answered)

    def until(self, when: float | None) -> None:
        """Wait until then, unless the wait is over already."""
        if self.scope is not None and not self.scope.expired() and not self.future.done():
            self.scope.reschedule(when)

    def extend(self, now: float) -> None:
        """Progress: the idle time begins anew."""
        if self.deadline is None:
            return
        if self._held:
            self._left = self.deadline.idle
        else:
            self.until(self.deadline.extend(now))

    def hold(self, now: float) -> None:
        """The idle time stands still while we ourselves work on an answer; the total time goes on."""
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
        """Silence, or (where they differ) the end of the time that progress does not extend."""
        ask = self.ask
        if ask.total != ask.idle and deadline.expires_at >= deadline.total_at:
            fault, words = Fault.TOTAL_DEADLINE, f"within the total time of {ask.total:g} s"
        else:
            fault, words = Fault.TIMEOUT, f"in time ({ask.idle:g} s)"
        detail = f"The server did not answer {ask.method} {words}."
        return TransportError(fault, detail, may_have_run=self.outgoing.left)

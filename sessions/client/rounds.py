"""A request until it is complete: sent, repaired after a definite rejection, and sent again with what it asked for.

Source: 2026-07-28 *Multi Round-Trip Requests*; 2025-11-25 *Elicitation / URL Elicitation Required Error*.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..protocol.errors import Fault, HttpError, LocalError, McpError, RpcError
from ..protocol.jsonrpc import RequestId
from ..protocol.rounds import InputRequired, ResultKind, visits
from ..protocol.rounds import Rounds as Counter
from .pump import Ask
from .requesting import Requesting

BeforeSend = Callable[[int, str], Awaitable[None]]


@dataclass(slots=True, eq=False)  # not frozen: one is made for each call, and a frozen one costs four times as much
class Performed:
    """`ends`: the loop time of the total deadline. `rounds`: how often the server asked back."""

    request_id: RequestId
    result: dict[str, Any]
    kind: ResultKind
    attempts: int
    rounds: int
    ends: float


@dataclass(slots=True)
class _Course:
    """The attempts of one call. `repaired` holds for one round, `visited` for the whole call; `begun`: the server
    asked back, so whatever comes next, it did something already."""

    before_send: BeforeSend | None
    attempt: int = 0
    reason: str = "first"
    repaired: bool = False
    visited: bool = False
    begun: bool = False

    def next(self) -> Callable[[], Awaitable[None]] | None:
        self.attempt += 1
        return partial(self.before_send, self.attempt, self.reason) if self.before_send else None

    async def repeat(self, reason: str) -> None:
        """The transport sends it once more, with another token."""
        self.reason = reason
        if before := self.next():
            await before()


class Rounds(Requesting):
    async def _performed(self, ask: Ask, before_send: BeforeSend | None = None) -> Performed:
        """Send until the result is no question any more: at most `limits.rounds` rounds, all within `ask.total`."""
        ends = asyncio.get_running_loop().time() + ask.total
        course, counter, rounds = _Course(before_send), Counter(self._limits), 0
        asking = ask
        while True:
            try:
                identity, result, kind = await self._sent(asking, course, ends)
            except McpError as exc:
                if course.begun and not exc.may_have_run:
                    raise exc.again(may_have_run=True) from exc
                raise
            if kind != "input_required":
                return Performed(identity, result, kind, course.attempt, rounds, ends)
            rounds += 1
            async with _within(ends):
                added = await self._round(counter.take(result), ask.tag)
            # From the original parameters: nothing of an earlier round may come along.
            asking = replace(ask, params=(ask.params or {}) | added, mirrored=asking.mirrored)
            course.reason, course.repaired, course.begun = "round", False, True

    async def _round(self, wanted: InputRequired, tag: Any) -> dict[str, Any]:
        if wanted.pause:
            await asyncio.sleep(wanted.pause)
        return wanted.params(await self._collecting.collect(wanted.questions, origin="round", tag=tag))

    async def _sent(self, ask: Ask, course: _Course, ends: float) -> tuple[RequestId, dict[str, Any], ResultKind]:
        while True:
            ask.before, ask.before_repeat = course.next(), course.repeat
            generation = self._generation
            if course.attempt > 1:
                ask.total = _left(ends, course)
            try:
                return await self._checked(ask)
            except (HttpError, RpcError) as exc:
                reason = await self._remedied(exc, ask, course, generation, ends)
                if not reason:
                    raise
                course.reason = reason

    async def _remedied(
        self, error: HttpError | RpcError, ask: Ask, course: _Course, generation: int, ends: float
    ) -> str:
        """What was done so that the request may be sent once more; empty: it may not."""
        revision = self._session.revision
        if isinstance(error, RpcError) and revision is not None and not course.visited:
            wanted = visits(error, revision, self._session.declared, self._limits)
            if wanted:
                course.visited = course.begun = True
                async with _within(ends):
                    await self._collecting.visit(wanted, ask.tag)
                return "url_elicitation"
        if course.repaired:
            return ""
        course.repaired = True
        reason = await self._repaired(error, generation)
        if reason == "header_mismatch":
            await self._relearn(ask)
        return reason

    async def _relearn(self, ask: Ask) -> None:
        """Find out anew which arguments headers repeat."""


def _left(ends: float, course: _Course) -> float:
    left = ends - asyncio.get_running_loop().time()
    if left <= 0:
        words = "The total time of the call ended before it could be sent again."
        raise LocalError(Fault.TOTAL_DEADLINE, words, may_have_run=course.begun)
    return left


@asynccontextmanager
async def _within(ends: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(ends):
            yield
    except TimeoutError as exc:
        words = "The total time of the call ended while the server waited for input."
        raise LocalError(Fault.TOTAL_DEADLINE, words, may_have_run=True) from exc

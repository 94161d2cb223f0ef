"""Runs a request to completion: sends it, repairs it after a definite rejection, resends it with requested input.

Source: 2026-07-28 *Multi Round-Trip Requests*; 2025-11-25 *Elicitation / URL Elicitation Required Error*.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..core.errors import Fault, HttpError, LocalError, McpError, NotReady, RpcError
from ..core.input_requests import Refused
from ..core.jsonrpc import RequestId
from ..core.limits import Limits
from ..core.rounds import InputRequired, ResultKind, Rounds, Visit, visits
from .collecting import Collecting
from .pump import RequestSpec
from .requester import Requester

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
class _Attempts:
    """The attempts of one call. `repaired` applies to one round, `visited` to the whole call; `begun`: the server asked
    back with a result, so it has done something already, whatever comes next."""

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
        """The transport sends it again, with another token."""
        self.reason = reason
        if before := self.next():
            await before()


class RoundTrips:
    """`relearn` determines again which arguments of a call headers repeat, and corrects the call."""

    def __init__(
        self,
        requester: Requester,
        collecting: Collecting,
        limits: Limits,
        relearn: Callable[[RequestSpec], Awaitable[None]],
    ) -> None:
        self._requester, self._session = requester, requester.session
        self._collecting, self._limits, self._relearn = collecting, limits, relearn

    async def perform(self, spec: RequestSpec, before_send: BeforeSend | None = None) -> Performed:
        """Send until the result is no longer a question: at most `limits.rounds` rounds, all within `spec.total`."""
        ends = asyncio.get_running_loop().time() + spec.total
        attempts = _Attempts(before_send)
        rounds: Rounds | None = None
        spec_of_round = spec
        while True:
            try:
                identity, result, kind = await self._sent(spec_of_round, attempts, ends)
            except McpError as exc:
                if attempts.begun and not exc.may_have_run:
                    raise exc.again(may_have_run=True) from exc
                raise
            declared = spec.on_behalf.capabilities if spec.on_behalf is not None else None
            if kind == "input_required" and declared is not None:
                self._collecting.check(Rounds(self._limits).take(result).questions, declared)
                return Performed(identity, result, kind, attempts.attempt, 0, ends)
            if kind != "input_required":
                return Performed(identity, result, kind, attempts.attempt, rounds.taken if rounds else 0, ends)
            rounds = rounds or Rounds(self._limits)
            async with _within(ends, may_have_run=True):
                added = await self._round(rounds.take(result), spec.tag)
            # From the original parameters: nothing of an earlier round may be included.
            spec_of_round = replace(spec, params=(spec.params or {}) | added, mirrored=spec_of_round.mirrored)
            attempts.reason, attempts.repaired, attempts.begun = "round", False, True

    async def _round(self, required: InputRequired, tag: Any) -> dict[str, Any]:
        if required.pause:
            await asyncio.sleep(required.pause)
        return required.params(await self._collecting.collect(required.questions, origin="round", tag=tag))

    async def _sent(
        self, spec: RequestSpec, attempts: _Attempts, ends: float
    ) -> tuple[RequestId, dict[str, Any], ResultKind]:
        while True:
            spec.before, spec.before_repeat = attempts.next(), attempts.repeat
            generation = self._requester.generation
            if attempts.attempt > 1:
                spec.total = _left(ends, attempts)
            try:
                return await self._requester.exchange(spec)
            except (HttpError, RpcError, NotReady) as exc:
                reason = await self._remedied(exc, spec, attempts, generation, ends)
                if not reason:
                    raise
                attempts.reason = reason

    async def _remedied(
        self,
        error: HttpError | RpcError | NotReady,
        spec: RequestSpec,
        attempts: _Attempts,
        generation: int,
        ends: float,
    ) -> str:
        """The repair after which the request may be sent again; empty: it may not."""
        revision = self._session.revision
        if isinstance(error, RpcError) and revision is not None and not attempts.visited:
            requested = visits(error, revision, self._session.declared, self._limits)
            if requested:
                attempts.visited = True
                return await self._visited(requested, spec.tag, ends)
        if attempts.repaired:
            return ""
        attempts.repaired = True
        reason = await self._requester.repair(error, generation)
        if reason == "header_mismatch":
            await self._relearn(spec)
        return reason

    async def _visited(self, requested: Sequence[Visit], tag: Any, ends: float) -> str:
        """Empty if no one is available to visit the URLs: the caller gets the error, which names them."""
        try:
            async with _within(ends, may_have_run=False):
                await self._collecting.visit(requested, tag)
        except Refused:
            return ""
        return "url_elicitation"


def _left(ends: float, attempts: _Attempts) -> float:
    left = ends - asyncio.get_running_loop().time()
    if left <= 0:
        words = "The total timeout of the call was reached before it could be sent again."
        raise LocalError(Fault.TOTAL_DEADLINE, words, may_have_run=attempts.begun)
    return left


@asynccontextmanager
async def _within(ends: float, *, may_have_run: bool) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(ends):
            yield
    except TimeoutError as exc:
        words = "The total timeout of the call was reached while the server waited for input."
        raise LocalError(Fault.TOTAL_DEADLINE, words, may_have_run=may_have_run) from exc

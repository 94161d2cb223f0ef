"""Calls: claim, send, outcome. Wake-ups and ticks only name a row. The claim ensures that a row named twice is sent
once."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial
from uuid import UUID

import structlog

from sessions.calls import claims
from sessions.calls.claims import CallOutcome, PendingCall
from sessions.calls.operations import texts_of
from sessions.enums import CallState
from sessions.host.calls import outcomes, senders
from sessions.host.calls.progress import CallProgress
from sessions.host.calls.senders import OperationRequest, Raw
from sessions.host.calls.spool import Spool, SpooledOutcome
from sessions.host.db import Database, DatabaseAway, RowsOrphaned, RowsRefused
from sessions.host.open_session import CONCURRENCY, OpenSession
from sessions.mcp.core.errors import Fault, McpError, NotReady
from sessions.mcp.core.input_requests import Origin
from sessions.mcp.core.methods import TOOLS_CALL

CALLS_LIMIT = 1_000
log = structlog.get_logger(__name__)
FindSession = Callable[[int], OpenSession | None]


class Calls:
    """The calls this worker is handling, from the first read of the row to the committed outcome."""

    def __init__(self, db: Database, find: FindSession, counters: "Counter[str]", spool: Spool) -> None:
        self._db, self._find, self._counters, self._spool = db, find, counters, spool
        self._running: dict[UUID, CallRun] = {}
        self._of_session: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        #: calls whose claim the database did not confirm, so nothing was sent; oldest first. One that is forgotten here,
        #: above CALLS_LIMIT, counts as sent
        self._unconfirmed: dict[UUID, None] = {}
        self.closed = False

    def accept(self, uid: UUID, session_id: int) -> None:
        """Start handling a call that waits for this session. Without room, the call is dropped: the tick finds its row
        again."""
        if self.closed or uid in self._running:
            return
        if not self._has_room(session_id):
            self._counters["calls_full"] += 1
            return
        run = self._running[uid] = CallRun(uid, session_id, self._db, self._find, self._spool)
        self._of_session[session_id] += 1
        task = asyncio.create_task(self._carry(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _has_room(self, session_id: int) -> bool:
        """Beyond the limit, each session may still fill its slots, so that the queues of a few slow servers do not hold
        up others."""
        if len(self._running) < CALLS_LIMIT:
            return True
        return self._of_session[session_id] < CONCURRENCY and self._find(session_id) is not None

    def cancel(self, uid: UUID) -> None:
        if run := self._running.get(uid):
            run.cancel()

    @property
    def uids(self) -> set[UUID]:
        return set(self._running)

    @property
    def unconfirmed(self) -> set[UUID]:
        return set(self._unconfirmed)

    async def settle(self, seconds: float) -> None:
        """Wait up to `seconds` for every outcome to be committed."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, seconds))

    async def _carry(self, run: "CallRun") -> None:
        try:
            await run.carry()
        except DatabaseAway:
            self._counters["database_away"] += 1
        except Exception:  # a bug of ours in one call must not end the others; the tick ends the row
            log.exception("host.call_failed", call=str(run.uid))
        finally:
            del self._running[run.uid]
            self._of_session[run.session_id] -= 1
            if not self._of_session[run.session_id]:
                del self._of_session[run.session_id]
            self._note_claim(run)

    def _note_claim(self, run: "CallRun") -> None:
        if run.claim is Claim.CONFIRMED:
            self._unconfirmed.pop(run.uid, None)
        elif run.claim is Claim.UNCONFIRMED:
            self._unconfirmed[run.uid] = None
            if len(self._unconfirmed) > CALLS_LIMIT:
                del self._unconfirmed[next(iter(self._unconfirmed))]


class Claim(Enum):
    NONE = "none"
    UNCONFIRMED = "unconfirmed"
    CONFIRMED = "confirmed"


class CallRun:
    def __init__(self, uid: UUID, session_id: int, db: Database, find: FindSession, spool: Spool) -> None:
        self.uid, self.session_id = uid, session_id
        self._db, self._find, self._spool = db, find, spool
        self._sending: asyncio.Task[Raw] | None = None
        self._live: OpenSession | None = None
        #: what the call was waiting for on our side when it was cancelled, with no request at the server
        self._waited_for: Origin | None = None
        self._cancelled = False
        self._words = ""
        self.claim = Claim.NONE

    def cancel(self, words: str = "") -> None:
        """Cancel the request, which the client reports to the server. A response that arrived first counts."""
        self._cancelled, self._words = True, words
        if self._sending is not None and self._live is not None:
            self._waited_for = self._live.inbox.waits_for(self.uid)
            self._sending.cancel()

    async def carry(self) -> None:
        live = self._find(self.session_id)
        if live is None:
            return
        async with live.slot(self) as admitted:
            if not admitted or not live.accepting or self._cancelled:
                return
            try:
                call = await self._take(live)
            except DatabaseAway:
                self.claim = Claim.UNCONFIRMED
                raise
            if call is not None:
                self.claim = Claim.CONFIRMED
                await self._answer(call, live)

    async def _take(self, live: OpenSession) -> PendingCall | None:
        """An agent's call waits until a change that the server announced is read: it may affect the tool that is
        called. Changes to other lists do not matter."""
        take = partial(claims.take, self.uid, live.lease, unread=live.catalog.unread)
        taken = await self._db.write(take, claims.taken_events)
        if taken is not None and taken.too_early and await live.catalog.catch_up(taken.too_early):
            taken = await self._db.write(partial(claims.take, self.uid, live.lease), claims.taken_events)
        return taken.call if taken is not None else None

    async def _answer(self, call: PendingCall, live: OpenSession) -> None:
        try:
            outcome = await self._perform(call, live)
        except Exception as exc:  # the row is claimed: whatever went wrong on our side, it needs a final state
            log.exception("host.call_broke", call=str(self.uid))
            outcome = outcomes.of_internal_error(exc, texts_of(call.method).unknown_outcome)
        try:
            await self._record(call, live, outcome)
        except (RowsOrphaned, RowsRefused):  # retrying would not help
            await self._spool.done(call.uid)
            raise
        await self._spool.done(call.uid)
        if outcome.state is CallState.OUTCOME_UNKNOWN:
            live.follow_tasks()

    async def _record(self, call: PendingCall, live: OpenSession, outcome: CallOutcome) -> None:
        """If the database refuses the outcome, the call ends without what the server sent."""
        keep = partial(self._spool.keep, SpooledOutcome(call, live.lease, outcome))
        finish = partial(claims.finish, call, live.lease, outcome, await outcomes.packed(self._db, outcome))
        try:
            await self._db.persist(finish, list, keep)
        except RowsRefused as problem:
            log.error("host.result_refused", call=str(call.uid), problem=str(problem)[:200])
            bare = outcomes.not_stored(outcome, problem)
            await self._db.persist(partial(claims.finish, call, live.lease, bare), list)

    async def _perform(self, call: PendingCall, live: OpenSession) -> CallOutcome:
        sender, unknown_outcome = senders.sender_of(call.method), texts_of(call.method).unknown_outcome
        progress = CallProgress(self._db, call, live.lease, live.redactor)
        request = OperationRequest(call, live, progress, partial(self._before_send, call, live))
        outcome = await self._outcome(sender, request, unknown_outcome)
        return replace(outcome, upstream=request.upstream)

    async def _outcome(self, sender: senders.Sender, request: OperationRequest, unknown_outcome: str) -> CallOutcome:
        call, live = request.call, request.live
        masks = outcomes.ResultMasks.of(call, live.lease, live.redactor)
        try:
            raw = await self._send(sender, request)
        except McpError as error:
            if error.fault in (Fault.UNAUTHORIZED, Fault.KEY_NEEDED):
                live.client.check()  # maybe only this tool is refused, and not the others or the running calls
            return await outcomes.of_failure(error, masks, unknown_outcome)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            if self._waited_for is not None:
                return outcomes.cancelled_while_waiting(self._waited_for, self._words, unknown_outcome)
            if request.progress.has_task and not live.client.tasks_offer.cancel:
                return outcomes.task_not_cancellable(self._words, unknown_outcome)
            return outcomes.cancelled(self._words, unknown_outcome)
        finally:
            request.progress.close()
        asks = outcomes.requires_input(raw, modern=live.modern)
        conformity = outcomes.UNCHECKED if asks else await sender.check(call, raw)
        tool = call.method == TOOLS_CALL
        return await outcomes.of_answer(
            raw, partial(outcomes.of_result, raw, masks, conformity, modern=live.modern, tool=tool)
        )

    async def _send(self, sender: senders.Sender, request: OperationRequest) -> Raw:
        self._live = request.live
        self._sending = asyncio.create_task(sender.send(request))
        if self._cancelled:
            self._sending.cancel()
        return await self._sending

    async def _before_send(self, call: PendingCall, live: OpenSession, number: int, reason: str) -> None:
        """The claim already committed the first attempt. Each further attempt is committed before its bytes are
        sent."""
        if number == 1:
            return
        try:
            recorded = await self._db.write(partial(claims.attempt, call, live.lease, number, reason), list)
        except DatabaseAway as exc:
            raise NotReady("The next attempt could not be recorded, so it was not made.") from exc
        if not recorded:
            raise NotReady("The call had already ended, so it was not sent again.")
        live.inbox.call_sent(call.uid)

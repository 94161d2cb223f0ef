"""Calls: claim, send, outcome. Each message or tick only names a row; a row is sent at most once, whatever is repeated."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from uuid import UUID

import structlog

from sessions.domain import claims
from sessions.domain.claims import Order, Outcome
from sessions.domain.operations import words_of
from sessions.host import operations, outcomes
from sessions.host.db import Database, DatabaseAway
from sessions.host.live import Live
from sessions.host.operations import Raw, Request
from sessions.host.progress import Progress
from sessions.host.spool import Kept, Spool
from sessions.protocol.errors import Fault, McpError, NotReady
from sessions.protocol.methods import TOOLS_CALL

INBOX_LIMIT = 1_000
log = structlog.get_logger(__name__)
FindSession = Callable[[int], Live | None]


class Calls:
    """All calls that this worker has in its hands, from the first look at the row to the committed outcome."""

    def __init__(self, db: Database, find: FindSession, counters: "Counter[str]", spool: Spool) -> None:
        self._db, self._find, self._counters, self._spool = db, find, counters, spool
        self._running: dict[UUID, CallRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False

    def accept(self, uid: UUID, session_id: int) -> None:
        """Look at the row of a call that waits for this session. Full means dropped: the tick finds the row again."""
        if self.closed or uid in self._running:
            return
        if len(self._running) >= INBOX_LIMIT:
            self._counters["inbox_full"] += 1
            return
        run = self._running[uid] = CallRun(uid, session_id, self._db, self._find, self._spool)
        task = asyncio.create_task(self._carry(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self, uid: UUID) -> None:
        if run := self._running.get(uid):
            run.cancel()

    @property
    def uids(self) -> set[UUID]:
        return set(self._running)

    async def settle(self, seconds: float) -> None:
        """Wait until every outcome is committed, or the time is over."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, seconds))

    async def _carry(self, run: "CallRun") -> None:
        try:
            await run.carry()
        except DatabaseAway:
            self._counters["database_away"] += 1
        except Exception:  # a fault of ours in one call must not end the others; the tick ends the row
            log.exception("host.call_failed", call=str(run.uid))
        finally:
            del self._running[run.uid]


class CallRun:
    def __init__(self, uid: UUID, session_id: int, db: Database, find: FindSession, spool: Spool) -> None:
        self.uid, self._session_id = uid, session_id
        self._db, self._find, self._spool = db, find, spool
        self._sending: asyncio.Task[Raw] | None = None
        self._cancelled = False
        self._words = ""

    def cancel(self, words: str = "") -> None:
        """Ends the request at the server as its era wants it; an answer that came first counts."""
        self._cancelled, self._words = True, words
        if self._sending is not None:
            self._sending.cancel()

    async def carry(self) -> None:
        live = self._find(self._session_id)
        if live is None:
            return
        async with live.slot(self) as admitted:
            if not admitted or not live.accepting or self._cancelled:
                return
            if taken := await self._db.write(partial(claims.take, self.uid, live.hold), claims.taken_events):
                await self._answer(taken.order, live)

    async def _answer(self, order: Order, live: Live) -> None:
        try:
            outcome = await self._perform(order, live)
        except Exception as exc:  # the row is claimed: whatever went wrong on our side, it needs its end
            log.exception("host.call_broke", call=str(self.uid))
            outcome = outcomes.of_fault_of_ours(exc, words_of(order.method).unsure)
        keep = partial(self._spool.keep, Kept(order, live.hold, outcome))
        await self._db.persist(partial(claims.finish, order, live.hold, outcome), list, keep)
        await self._spool.done(order.uid)

    async def _perform(self, order: Order, live: Live) -> Outcome:
        sender, unsure = operations.sender_of(order.method), words_of(order.method).unsure
        progress = Progress(self._db, order, live.hold, live.redactor)
        try:
            raw = await self._send(sender, Request(order, live, progress, partial(self._before_send, order, live)))
        except McpError as error:
            if error.fault is Fault.UNAUTHORIZED:
                live.suspect(error)
            return outcomes.of_error(error, live.redactor, unsure)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            return outcomes.cancelled(self._words, unsure)
        finally:
            progress.close()
        violation = await sender.violation(order, raw)
        return outcomes.of_result(raw, live.redactor, violation, tool=order.method == TOOLS_CALL)

    async def _send(self, sender: operations.Sender, request: Request) -> Raw:
        self._sending = asyncio.create_task(sender.send(request))
        if self._cancelled:
            self._sending.cancel()
        return await self._sending

    async def _before_send(self, order: Order, live: Live, number: int, reason: str) -> None:
        """The first attempt was committed with the claim; each further one is committed before its bytes leave."""
        if number == 1:
            return
        try:
            recorded = await self._db.write(partial(claims.attempt, order, live.hold, number, reason), list)
        except DatabaseAway as exc:
            raise NotReady("A further attempt could not be recorded, so it was not made.") from exc
        if not recorded:
            raise NotReady("The call was ended meanwhile, so it was not sent again.")

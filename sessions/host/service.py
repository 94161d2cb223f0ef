"""The host itself: takes messages, owns the supervisors, and ends in order. All of it in the loop's thread."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings

from sessions.domain import claiming, claims, inbox_read
from sessions.domain.lifecycle import Hold
from sessions.domain.ownership import Incarnation
from sessions.host import sign_ins
from sessions.host.calls import Calls
from sessions.host.db import Database, DatabaseAway
from sessions.host.live import Live
from sessions.host.log_writer import LogWriter
from sessions.host.orders import read_orders
from sessions.host.probe import Probe
from sessions.host.shared import Shared
from sessions.host.spool import Spool
from sessions.host.supervisor import Supervisor
from sessions.host.webhooks import Webhooks

#: messages that are being looked at; more are dropped, since the tick finds every row
INBOX_LIMIT = 1_000
TESTS_AT_ONCE = 10
log = structlog.get_logger(__name__)


class Host:
    def __init__(self, me: Incarnation, db: Database) -> None:
        self.me, self.db = me, db
        self.worker_id: int | None = None
        #: False for a full stale period after the database was away
        self.may_claim = True
        self.counters: Counter[str] = Counter()
        self.spool_directory = Path(settings.DATA_DIR) / "spool"
        self.calls = Calls(db, self._live_session, self.counters, Spool(self.spool_directory, me.uid))
        self.webhooks = Webhooks(db)
        self.shared = Shared(LogWriter(db), settings.RECONNECT_CEILING_SECONDS, self._on_ready, self.webhooks.look)
        self.supervisors: dict[int, Supervisor] = {}
        #: sessions that grew ready, whose waiting calls are to be found
        self._ready: set[int] = set()
        self._finding = False
        self._tests: set[UUID] = set()
        self._test_slots = asyncio.Semaphore(TESTS_AT_ONCE)
        self._jobs: set[asyncio.Task[Any]] = set()
        self._holders: set[asyncio.Task[None]] = set()
        self._verbs: dict[str, Callable[[UUID], None]] = {
            "cancel": self.calls.cancel,
            "session": self.look_at,
            "test": self.test,
            "answer": self.look_at_answer,
            "authorize": self.authorize,
        }

    # --- messages ----------------------------------------------------------------------------------------------------
    def accept(self, body: Any) -> None:
        """One ring or several, by whoever: it can only make us look at a row. Anything unknown is counted and dropped."""
        several = body.get("rings") if isinstance(body, dict) else None
        for one in several if isinstance(several, list) else [body]:
            self._accept(one)

    def _accept(self, body: Any) -> None:
        ring = _read_ring(body)
        if ring is None or ring.verb not in (*self._verbs, "call"):
            self.counters["foreign"] += 1
        elif self.shared.draining:
            self.counters["draining"] += 1
        elif ring.verb == "call":
            self.calls.accept(ring.uid, ring.session_id)
        else:
            self._verbs[ring.verb](ring.uid)

    def look_at(self, session_uid: UUID) -> None:
        """Read a session's orders again, or claim it when it is wanted and free."""
        self._do(self._look(session_uid))

    def look_at_answer(self, question_uid: UUID) -> None:
        """Read the row of a question that one of our sessions waits for."""
        for item in self.supervisors.values():
            if item.live is not None and question_uid in item.live.inbox.uids:
                self._do(item.live.inbox.look())

    def test(self, draft_uid: UUID) -> None:
        if draft_uid not in self._tests:
            self._tests.add(draft_uid)
            self._do(self._test(draft_uid), on_drop=partial(self._tests.discard, draft_uid))

    def authorize(self, sign_in_uid: UUID) -> None:
        """The next step of a sign-in; who is not the first to take it does nothing."""
        self._do(sign_ins.run(self.db, sign_in_uid))

    async def _look(self, session_uid: UUID) -> None:
        held = next((item for item in self.supervisors.values() if item.hold.session_uid == session_uid), None)
        if held is None:
            await self.claim(partial(claiming.claim_one, session_uid))
        elif self.worker_id is not None:
            found = await self.db.read(partial(read_orders, self.worker_id, uid=session_uid))
            held.ordered(found.get(held.hold.session_id))

    async def _test(self, draft_uid: UUID) -> None:
        try:
            async with self._test_slots:
                await Probe(self.db, draft_uid).run()
        finally:
            self._tests.discard(draft_uid)

    def _on_ready(self, session_id: int) -> None:
        self._ready.add(session_id)
        if not self._finding:
            self._do(self._find_calls_of_the_ready())

    async def _find_calls_of_the_ready(self) -> None:
        """Sessions that grow ready while it reads are read together."""
        self._finding = True
        try:
            while self._ready:
                found, self._ready = self._ready, set()
                await self.find_calls(list(found))
        finally:
            self._finding = False

    async def find_calls(self, session_ids: list[int]) -> None:
        for uid, session_id in await self.db.read(partial(claims.waiting, session_ids)):
            self.calls.accept(uid, session_id)

    async def find_answers(self) -> None:
        """Of every question that a session of ours waits for."""
        inboxes = [item.live.inbox for item in self.supervisors.values() if item.live is not None]
        if uids := [uid for inbox in inboxes for uid in inbox.uids]:
            found = await self.db.read(partial(inbox_read.settled, uids))
            for inbox in inboxes:
                inbox.take(found)

    def ready_sessions(self) -> list[int]:
        return [key for key, item in self.supervisors.items() if item.live is not None]

    def live_sessions(self) -> list[Live]:
        return [item.live for item in self.supervisors.values() if item.live is not None]

    def _live_session(self, session_id: int) -> Live | None:
        supervisor = self.supervisors.get(session_id)
        return supervisor.live if supervisor else None

    # --- sessions ----------------------------------------------------------------------------------------------------
    async def claim(self, claim: Callable[[int], list[Hold]]) -> int:
        """How many sessions were taken."""
        if self.worker_id is None or self.shared.draining or not self.may_claim:
            return 0
        worker_id = self.worker_id
        holds = await self.db.write(lambda: claim(worker_id))
        if holds:
            orders = await self.db.read(partial(read_orders, worker_id, pk__in=[hold.session_id for hold in holds]))
            for hold in holds:
                self._adopt(hold, orders.get(hold.session_id))
        return len(holds)

    def _adopt(self, hold: Hold, orders: Any) -> None:
        if orders is None or hold.session_id in self.supervisors:
            return  # taken back already, or its former supervisor still ends: the next tick sees to it
        supervisor = self.supervisors[hold.session_id] = Supervisor(hold, orders, self.db, self.shared)
        task = asyncio.create_task(self._hold(supervisor))
        self._holders.add(task)
        task.add_done_callback(self._holders.discard)

    async def _hold(self, supervisor: Supervisor) -> None:
        try:
            await supervisor.run()
        except Exception:  # a fault of ours in one session must not end the others; the tick frees the row
            log.exception("host.supervisor_failed", session=str(supervisor.hold.session_uid))
        finally:
            del self.supervisors[supervisor.hold.session_id]
        if not self.shared.draining:
            self.look_at(supervisor.hold.session_uid)  # it may be wanted again meanwhile

    # --- the end -------------------------------------------------------------------------------------------------------
    async def drain(self, seconds: float) -> None:
        """Take nothing new, let calls in flight end, close and give back every session."""
        closing = min(2.0, seconds / 3)
        self.shared.drain(seconds - closing)
        self.calls.closed = True
        for supervisor in list(self.supervisors.values()):
            supervisor.look()
        for task in list(self._jobs):
            task.cancel()
        if self._holders:
            await asyncio.wait(self._holders, timeout=max(0.1, seconds - 0.5))
        await self.calls.settle(0.5)
        await self.webhooks.close()
        for task in list(self._holders):
            task.cancel()

    # --- small jobs ----------------------------------------------------------------------------------------------------
    def _do(self, job: Coroutine[Any, Any, None], on_drop: Callable[[], None] | None = None) -> None:
        if len(self._jobs) >= INBOX_LIMIT:
            self.counters["inbox_full"] += 1
            job.close()
            if on_drop:
                on_drop()
            return
        task = asyncio.create_task(self._guarded(job))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _guarded(self, job: Coroutine[Any, Any, None]) -> None:
        try:
            await job
        except DatabaseAway:
            self.counters["database_away"] += 1  # what it was about stands in a row: the tick finds it
        except Exception:  # a fault of ours in one message must not go unseen, nor end the host
            log.exception("host.job_failed")


@dataclass(frozen=True)
class _Ring:
    verb: str
    uid: UUID
    session_id: int


def _read_ring(body: Any) -> _Ring | None:
    """A message of ours that is still good. Its session is a guess as the rest of it: the row decides."""
    if not isinstance(body, dict) or body.get("v") != 1 or not isinstance(body.get("verb"), str):
        return None
    expires = body.get("expires")
    if isinstance(expires, int | float) and expires < time.time():
        return None
    try:
        return _Ring(body["verb"], UUID(str(body.get("id"))), int(body.get("session", 0)))
    except (ValueError, TypeError, OverflowError):
        return None

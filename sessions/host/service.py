"""The host itself: receives messages, owns the supervisors and shuts down in order, all in the loop's thread."""

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

from servers.audit import payload_privacy
from sessions.calls import claims
from sessions.connections import assignment
from sessions.connections.lifecycle import Lease
from sessions.host.authorization import client_documents
from sessions.host.authorization import steps as authorization_steps
from sessions.host.calls.dispatch import Calls
from sessions.host.calls.spool import Spool
from sessions.host.checkpoints import Checkpoints
from sessions.host.connection_test import ConnectionTest
from sessions.host.db import Database, DatabaseAway
from sessions.host.desired_state import read_desired_states
from sessions.host.forwarding import Forwarding
from sessions.host.logs.writer import LogWriter
from sessions.host.open_session import OpenSession
from sessions.host.packages import checking
from sessions.host.reconnect_delays import ceilings
from sessions.host.session_supervisor import SessionSupervisor
from sessions.host.shared import Shared
from sessions.host.subscriptions.notification_counts import CountWriter
from sessions.host.subscriptions.webhook_sender import Webhooks
from sessions.host.wire.writer import WireWriter
from sessions.housekeeping.heartbeats import Incarnation
from sessions.inbox import reads

#: messages being handled; more are dropped, since the tick finds every row
JOBS_LIMIT = 1_000
TESTS_AT_ONCE = 10
CHECKS_AT_ONCE = 1
log = structlog.get_logger(__name__)


class Host:
    def __init__(self, me: Incarnation, db: Database) -> None:
        self.me, self.db = me, db
        self.worker_id: int | None = None
        #: False for a full stale period after a database outage
        self.may_claim = True
        self.counters: Counter[str] = Counter()
        self.spool_directory = Path(settings.DATA_DIR) / "spool"
        self.calls = Calls(db, self._live_session, self.counters, Spool(self.spool_directory, me.uid))
        self.webhooks = Webhooks(db)
        self.checkpoints = Checkpoints(db)
        self.forwarding = Forwarding(db)
        writers = (LogWriter(db), WireWriter(db), CountWriter(db))
        self.shared = Shared(*writers, ceilings(), self._on_ready, self.webhooks.look)
        self.supervisors: dict[int, SessionSupervisor] = {}
        #: sessions that became ready and whose waiting calls must be found
        self._ready: set[int] = set()
        self._finding = False
        self._tests: set[UUID] = set()
        self._test_slots = asyncio.Semaphore(TESTS_AT_ONCE)
        self._checks: set[UUID] = set()
        self._check_slots = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._jobs: set[asyncio.Task[Any]] = set()
        self._holders: set[asyncio.Task[None]] = set()
        #: set by the tick: look for ended workers now
        self.look_for_dead: Callable[[], None] = lambda: None
        self._verbs: dict[str, Callable[[UUID], None]] = {
            "cancel": self.calls.cancel,
            "session": self.look_at,
            "test": self.test,
            "answer": self.look_at_answer,
            "authorize": self.authorize,
            "reap": lambda _worker: self.look_for_dead(),
            "package": self.check_package,
            "client": self.read_client_document,
            "sink": lambda _sink: self.forwarding.look(),
            "tasks": self.look_at_tasks,
        }

    # --- messages ----------------------------------------------------------------------------------------------------
    def accept(self, body: Any) -> None:
        """Handle wake-ups from any process: each can only make us look at a row. Unknown ones are counted and
        dropped."""
        several = body.get("wakes") if isinstance(body, dict) else None
        for one in several if isinstance(several, list) else [body]:
            self._accept(one)

    def _accept(self, body: Any) -> None:
        wake = _read_wake(body)
        if wake is None or wake.verb not in (*self._verbs, "call"):
            self.counters["foreign"] += 1
        elif self.shared.draining:
            self.counters["draining"] += 1
        elif wake.verb == "call":
            self.calls.accept(wake.uid, wake.session_id)
            self._wake(wake.session_id)
        else:
            self._verbs[wake.verb](wake.uid)

    def look_at(self, session_uid: UUID) -> None:
        """Read a session's desired state again, or claim the session if it is desired and free."""
        self._do(self._look(session_uid))

    def look_at_answer(self, question_uid: UUID) -> None:
        """Read the row of a question that one of our sessions waits for."""
        for item in self.supervisors.values():
            if item.live is not None and question_uid in item.live.inbox.uids:
                self._do(item.live.inbox.look())

    def look_at_tasks(self, session_uid: UUID) -> None:
        """A person asked to cancel a task of this session that no call waits for any more."""
        for live in self.live_sessions():
            if live.lease.session_uid == session_uid:
                live.follow_tasks()

    def test(self, draft_uid: UUID) -> None:
        if draft_uid not in self._tests:
            self._tests.add(draft_uid)
            self._do(self._test(draft_uid), on_drop=partial(self._tests.discard, draft_uid))

    def authorize(self, sign_in_uid: UUID) -> None:
        """Run the next step of a sign-in. Only the first worker to take it acts."""
        self._do(authorization_steps.run(self.db, sign_in_uid))

    def read_client_document(self, client_uid: UUID) -> None:
        self._do(client_documents.run(self.db, client_uid))

    def check_package(self, server_uid: UUID) -> None:
        """Compare a pinned package with its registry. Only one of several workers does it, one package at a time."""
        if server_uid not in self._checks:
            self._checks.add(server_uid)
            self._do(self._check_package(server_uid), on_drop=partial(self._checks.discard, server_uid))

    async def _check_package(self, server_uid: UUID) -> None:
        try:
            async with self._check_slots:
                await checking.run(self.db, server_uid)
        finally:
            self._checks.discard(server_uid)

    async def _look(self, session_uid: UUID) -> None:
        held = next((item for item in self.supervisors.values() if item.lease.session_uid == session_uid), None)
        if held is None:
            await self.claim(partial(assignment.claim_one, session_uid))
        elif self.worker_id is not None:
            found = await self.db.read(partial(read_desired_states, self.worker_id, uid=session_uid))
            held.desired_changed(found.get(held.lease.session_id))

    async def _test(self, draft_uid: UUID) -> None:
        try:
            async with self._test_slots:
                await ConnectionTest(self.db, draft_uid).run()
        finally:
            self._tests.discard(draft_uid)

    def _on_ready(self, session_id: int) -> None:
        self._ready.add(session_id)
        if not self._finding:
            self._do(self._find_calls_of_ready_sessions())

    async def _find_calls_of_ready_sessions(self) -> None:
        """One read covers all sessions that became ready during the previous read."""
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

    def _wake(self, session_id: int) -> None:
        """A call for a session that waits for its next attempt is a reason to connect now. The row decides."""
        supervisor = self.supervisors.get(session_id)
        if supervisor is not None and supervisor.resting:
            self._do(self.wake([session_id]))

    async def wake(self, session_ids: list[int]) -> None:
        for uid, session_id in await self.db.read(partial(claims.waiting, session_ids)):
            if supervisor := self.supervisors.get(session_id):
                supervisor.call_waits(uid)

    def resting_sessions(self) -> list[int]:
        return [key for key, item in self.supervisors.items() if item.resting]

    async def find_answers(self) -> None:
        """For every question that one of our sessions waits for."""
        inboxes = [item.live.inbox for item in self.supervisors.values() if item.live is not None]
        if uids := [uid for inbox in inboxes for uid in inbox.uids]:
            found = await self.db.read(partial(reads.settled, uids))
            for inbox in inboxes:
                inbox.take(found)

    def ready_sessions(self) -> list[int]:
        return [key for key, item in self.supervisors.items() if item.live is not None]

    def live_sessions(self) -> list[OpenSession]:
        return [item.live for item in self.supervisors.values() if item.live is not None]

    def _live_session(self, session_id: int) -> OpenSession | None:
        supervisor = self.supervisors.get(session_id)
        return supervisor.live if supervisor else None

    # --- sessions ----------------------------------------------------------------------------------------------------
    async def claim(self, claim: Callable[[int], list[Lease]]) -> int:
        """Returns how many sessions were claimed."""
        if self.worker_id is None or self.shared.draining or not self.may_claim:
            return 0
        worker_id = self.worker_id
        await self.db.read(payload_privacy.current)  # what a session records follows them from its first message on
        leases = await self.db.write(lambda: claim(worker_id))
        if leases:
            desired = await self.db.read(
                partial(read_desired_states, worker_id, pk__in=[lease.session_id for lease in leases])
            )
            for lease in leases:
                self._adopt(lease, desired.get(lease.session_id))
        return len(leases)

    def _adopt(self, lease: Lease, desired: Any) -> None:
        if desired is None or lease.session_id in self.supervisors:
            return  # released already, or its former supervisor is still ending: the next tick handles it
        supervisor = self.supervisors[lease.session_id] = SessionSupervisor(lease, desired, self.db, self.shared)
        task = asyncio.create_task(self._supervise(supervisor))
        self._holders.add(task)
        task.add_done_callback(self._holders.discard)

    async def _supervise(self, supervisor: SessionSupervisor) -> None:
        try:
            await supervisor.run()
        except Exception:  # a bug of ours in one session must not end the others; the tick frees the row
            log.exception("host.supervisor_failed", session=str(supervisor.lease.session_uid))
        finally:
            del self.supervisors[supervisor.lease.session_id]
        if not self.shared.draining:
            self.look_at(supervisor.lease.session_uid)  # it may have become desired again meanwhile

    # --- the end ------------------------------------------------------------------------------------------------------
    async def drain(self, seconds: float) -> None:
        """Accept nothing new, let calls in flight end, close and release every session."""
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
        await self.checkpoints.close()
        await self.forwarding.close()
        for task in list(self._holders):
            task.cancel()

    # --- small jobs ---------------------------------------------------------------------------------------------------
    def _do(self, job: Coroutine[Any, Any, None], on_drop: Callable[[], None] | None = None) -> None:
        if len(self._jobs) >= JOBS_LIMIT:
            self.counters["jobs_full"] += 1
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
            self.counters["database_away"] += 1  # its subject is in a row: the tick finds it
        except Exception:  # a bug of ours in one message must be logged and must not end the host
            log.exception("host.job_failed")


@dataclass(frozen=True)
class _Wake:
    verb: str
    uid: UUID
    session_id: int


def _read_wake(body: Any) -> _Wake | None:
    """A valid message of ours that has not expired. Its content, including the session, is only a hint: the row
    decides."""
    if not isinstance(body, dict) or body.get("v") != 1 or not isinstance(body.get("verb"), str):
        return None
    expires = body.get("expires")
    if isinstance(expires, int | float) and expires < time.time():
        return None
    try:
        return _Wake(body["verb"], UUID(str(body.get("id"))), int(body.get("session", 0)))
    except (ValueError, TypeError, OverflowError):
        return None

"""The host's one clock. Every HEARTBEAT_SECONDS: a heartbeat, then everything that a lost message may have left undone.

The database's clock decides whether another worker is dead. Only a worker for which the database has answered for a
full stale period may decide that: after an outage, every heartbeat is old.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from servers.credentials import authorizations
from servers.enums import DraftState
from servers.models import ServerDraft
from servers.packages import checks
from servers.registration.drafts import update_draft
from sessions import hints
from sessions.calls import claims
from sessions.connections import assignment
from sessions.explorer import fulltext, indexing
from sessions.host.calls import spool
from sessions.host.cancelling import cancel_all
from sessions.host.db import DatabaseAway
from sessions.host.desired_state import read_desired_states
from sessions.host.service import Host
from sessions.housekeeping import dead_workers, due_calls, heartbeats
from sessions.housekeeping.dead_workers import Reaped
from sessions.housekeeping.machine import is_gone
from sessions.models import Worker

#: a test whose step takes longer has lost its worker
TEST_GIVEN_UP = timedelta(minutes=10)
#: seconds from the start of one full batch of claims to the start of the next
BETWEEN_CLAIMS = 1.0
#: between two batches of the search index: in between, calls have the database to themselves
BETWEEN_BATCHES = 0.1
log = structlog.get_logger(__name__)


class Tick:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._sweeping: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._indexing: asyncio.Task[None] | None = None
        #: monotonic time since which every heartbeat has been written; None while the database is unavailable
        self._answering_since: float | None = None
        self._was_away = False
        self._closing = False
        self._beaten_at = time.time()
        self._orphans: set[int] = set()
        self._woken: asyncio.Task[None] | None = None
        #: kept here, or it might be collected before it has run
        self._last_beat: asyncio.Task[None] | None = None
        host.look_for_dead = self.look_now

    async def run(self) -> None:
        while True:
            try:
                await self._beat()
            except Exception:  # without further heartbeats, this worker would count as dead without knowing it
                log.exception("host.beat_failed")
            await asyncio.sleep(settings.HEARTBEAT_SECONDS)

    def look_now(self) -> None:
        """Another worker was seen to end: clean up before the next tick."""
        self._woken = self._started(self._woken, self._look_now)

    async def _look_now(self) -> None:
        if self._sweeping is not None:
            await asyncio.wait({self._sweeping})
        if not self._closing:
            self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """The worker drains: no more sweeps. A last heartbeat lets other workers know before their next look."""
        self._closing = True
        self._last_beat = asyncio.create_task(self._beat())
        await cancel_all(self._woken, self._sweeping, self._claiming, self._indexing)

    async def _beat(self) -> None:
        host = self._host
        beat = partial(heartbeats.heartbeat, host.me, draining=self._closing, sessions=len(host.supervisors))
        try:
            host.worker_id = await host.db.write(beat, urgent=True)
        except DatabaseAway as exc:
            self._away(exc)
            return
        self._note_sleep()
        if self._answering_since is None:
            self._answering_since = time.monotonic()
        host.may_claim = self._steady() or not self._was_away
        hints.workers_changed()
        self._sweeping = self._started(self._sweeping, self._sweep)
        self._claiming = self._started(self._claiming, self._claim)
        self._indexing = self._started(self._indexing, self._index)

    def _started(
        self, task: asyncio.Task[None] | None, job: Callable[[], Coroutine[Any, Any, None]]
    ) -> asyncio.Task[None] | None:
        """`task` while it runs, then a new task of `job`; no new one is started once the worker drains."""
        if self._closing or not (task is None or task.done()):
            return task
        return asyncio.create_task(job())

    async def _index(self) -> None:
        """Index calls and events that have ended for the search, when nothing else needs to be written."""
        db = self._host.db
        try:
            while not self._closing and (batch := await db.read(indexing.next_batch)):
                if not await db.write(partial(indexing.write, batch), low_priority=True, durable=False):
                    return
                for _ in range(indexing.PORTIONS if fulltext.in_parts() else 0):
                    if self._closing or not await db.write(fulltext.merge, low_priority=True, durable=False):
                        break
                if not batch.more:
                    return  # until the next beat it is one batch: it costs the same for one call as for many
                await asyncio.sleep(BETWEEN_BATCHES * settings.TIME_SCALE)
        except DatabaseAway:
            self._host.counters["database_away"] += 1
        except Exception:  # a row that cannot be indexed must not stop the clock
            log.exception("host.index_failed")

    def _away(self, exc: DatabaseAway) -> None:
        if self._answering_since is not None:
            log.warning("host.database_away", problem=str(exc)[:200])
        self._forget_answers()

    def _forget_answers(self) -> None:
        """From now on, the database must answer for a full stale period before we declare workers dead or claim
        sessions."""
        self._answering_since = None
        self._was_away = True
        self._host.may_claim = False

    def _note_sleep(self) -> None:
        """After the machine slept every heartbeat is old, although the monotonic clock stood still meanwhile."""
        now, before = time.time(), self._beaten_at
        self._beaten_at = now
        if now - before >= settings.STALE_SECONDS:
            self._forget_answers()

    def _steady(self) -> bool:
        since = self._answering_since
        return since is not None and time.monotonic() - since >= settings.STALE_SECONDS

    async def _claim(self) -> None:
        """Another batch follows a full one, so that a thousand sessions do not wait for twenty ticks."""
        try:
            while True:
                following = time.monotonic() + BETWEEN_CLAIMS * settings.TIME_SCALE
                if await self._host.claim(assignment.claim_some) < assignment.CLAIM_LIMIT:
                    return
                await asyncio.sleep(max(0.0, following - time.monotonic()))
        except DatabaseAway:
            self._host.counters["database_away"] += 1
        except Exception:  # one bad row must not stop the clock; the next tick tries again
            log.exception("host.claim_failed")

    async def _sweep(self) -> None:
        try:
            await self._reap_dead_workers()
            await self._host.db.write(due_calls.expire, list)
            await self._read_desired_states()
            await self._read_calls()
            await self._host.find_answers()
            await self._read_drafts()
            await self._read_sign_ins()
            await self._read_packages()
            self._host.webhooks.look()
            self._host.checkpoints.look()
            self._host.forwarding.look()
        except DatabaseAway:
            self._host.counters["database_away"] += 1
        except Exception:  # one bad row must not stop the clock; the next tick tries again
            log.exception("host.tick_failed")

    # --- dead workers -------------------------------------------------------------------------------------------------
    async def _reap_dead_workers(self) -> None:
        db, include_stale = self._host.db, self._steady()
        gone = [worker for worker in await db.read(partial(heartbeats.same_node, self._host.me)) if is_gone(worker)]
        gone += await db.read(dead_workers.ended_workers)
        await self._merge_spools({worker.uid for worker in gone})
        reaped = await db.write(partial(self._reap, gone, include_stale), lambda found: found.events)
        if reaped.dead:
            log.info("host.reaped", workers=[str(uid) for uid in reaped.dead], calls=len(reaped.events))
            if self._claiming is not None:  # it may have looked before the sessions were free
                await asyncio.wait({self._claiming})
            if not self._closing:
                self._claiming = asyncio.create_task(self._claim())

    def _reap(self, gone: list[Worker], include_stale: bool) -> Reaped:
        """Runs in the writer, maybe seconds later. The machine may have slept meanwhile, and no worker has sent a
        heartbeat since then."""
        dead = {worker.pk: worker for worker in gone}
        if include_stale and time.time() - self._beaten_at < settings.STALE_SECONDS:
            dead |= {worker.pk: worker for worker in heartbeats.stale_workers().exclude(uid=self._host.me.uid)}
        return dead_workers.reap(dead.values())

    async def _merge_spools(self, dead: set[UUID]) -> None:
        """Runs before dead workers are reaped: a spooled result is the call's outcome, instead of *outcome unknown*."""
        host = self._host
        paths = await host.db.read(partial(spool.left_behind, host.spool_directory, host.me.uid, dead))
        await spool.merge(host.db, paths)

    # --- desired state ------------------------------------------------------------------------------------------------
    async def _read_desired_states(self) -> None:
        host = self._host
        if host.worker_id is None:
            return
        before = dict(host.supervisors)
        found = await host.db.read(partial(read_desired_states, host.worker_id))
        for session_id, supervisor in before.items():
            supervisor.desired_changed(found.get(session_id))
        orphans = found.keys() - before.keys() - host.supervisors.keys()
        if twice := orphans & self._orphans:
            await host.db.write(partial(dead_workers.disown, host.worker_id, twice))
        self._orphans = set(orphans)

    async def _read_calls(self) -> None:
        host = self._host
        await host.find_calls(host.ready_sessions())
        if resting := host.resting_sessions():
            await host.wake(resting)
        for uid in await host.db.read(partial(claims.cancelled_by_people, host.me.uid)):
            host.calls.cancel(uid)
        end_unhandled = partial(claims.end_unhandled, host.me.uid, host.calls.uids, host.calls.unconfirmed)
        await host.db.write(end_unhandled, list)

    async def _read_drafts(self) -> None:
        for uid in await self._host.db.read(partial(waiting_drafts, self._host.me.labels)):
            self._host.test(uid)
        await self._host.db.write(_end_lost_tests)

    async def _read_sign_ins(self) -> None:
        for uid in await self._host.db.read(partial(authorizations.waiting, self._host.me.labels)):
            self._host.authorize(uid)
        await self._host.db.write(authorizations.end_lost, list)

    async def _read_packages(self) -> None:
        for uid in await self._host.db.read(partial(checks.waiting, self._host.me.labels)):
            self._host.check_package(uid)


def waiting_drafts(labels: list[str]) -> list[UUID]:
    """Tests whose message was lost, or for which no worker could be notified."""
    mine = ServerDraft.objects.filter(worker_label__in=["", *labels])
    due = mine.filter(state=DraftState.REQUESTED, expires_at__gt=timezone.now())
    return list(due.values_list("uid", flat=True)[:20])


def _end_lost_tests() -> None:
    given_up = timezone.now() - TEST_GIVEN_UP
    running = ServerDraft.objects.filter(state=DraftState.RUNNING, created_at__lt=given_up)
    for uid, steps, expires_at in running.values_list("uid", "steps", "expires_at")[:20]:
        if _began_step(steps, expires_at) < given_up:
            update_draft(uid, state=DraftState.FAILED, detail="The worker running this test is gone. Test again.")


def _began_step(steps: list[dict[str, Any]], expires_at: datetime) -> datetime:
    """When the current step of a test began. The test may have waited for a worker until the draft expired."""
    began = [datetime.fromisoformat(step["since"]) for step in steps if "since" in step]
    return max(began, default=expires_at)

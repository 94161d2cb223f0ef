"""The one clock of the host. Every HEARTBEAT_SECONDS: a sign of life, then everything that a lost message may have left.

Whether another worker is dead is judged by the database's clock, and only by one who has seen the database answer for
a full stale period himself: after an outage every heartbeat is old.
"""

import asyncio
import time
from datetime import timedelta
from functools import partial
from uuid import UUID

import structlog
from django.conf import settings
from django.utils import timezone

from servers.domain import sign_ins
from servers.domain.drafts import update_draft
from servers.enums import DraftState
from servers.models import ServerDraft
from sessions import bus
from sessions.domain import claiming, claims, ownership
from sessions.domain.ownership import Burial
from sessions.host import spool
from sessions.host.db import DatabaseAway
from sessions.host.ending import end
from sessions.host.machine import is_gone
from sessions.host.orders import read_orders
from sessions.host.service import Host
from sessions.models import Worker

#: a test that runs longer lost its worker
TEST_GIVEN_UP = timedelta(minutes=10)
#: seconds from the beginning of a full batch of claims to that of the next
BETWEEN_CLAIMS = 1.0
log = structlog.get_logger(__name__)


class Tick:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._sweeping: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        #: monotonic time since which every heartbeat was written; None while the database is away
        self._answering_since: float | None = None
        self._was_away = False
        self._closing = False
        self._beaten_at = time.time()
        self._orphans: set[int] = set()

    async def run(self) -> None:
        while True:
            try:
                await self._beat()
            except Exception:  # without the next beats this worker counts as dead and does not know
                log.exception("host.beat_failed")
            await asyncio.sleep(settings.HEARTBEAT_SECONDS)

    async def close(self) -> None:
        """The worker drains: nothing is swept any more, and the others hear of it before their next look."""
        self._closing = True
        self._last_words = asyncio.create_task(self._beat())
        await end(self._sweeping, self._claiming)

    async def _beat(self) -> None:
        host = self._host
        beat = partial(ownership.heartbeat, host.me, draining=self._closing, sessions=len(host.supervisors))
        try:
            host.worker_id = await host.db.write(beat, urgent=True)
        except DatabaseAway as exc:
            self._away(exc)
            return
        self._note_sleep()
        if self._answering_since is None:
            self._answering_since = time.monotonic()
        host.may_claim = self._steady() or not self._was_away
        bus.workers_changed()
        if not self._closing and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = asyncio.create_task(self._sweep())
        if not self._closing and (self._claiming is None or self._claiming.done()):
            self._claiming = asyncio.create_task(self._claim())

    def _away(self, exc: DatabaseAway) -> None:
        if self._answering_since is not None:
            log.warning("host.database_away", problem=str(exc)[:200])
        self._forget_answers()

    def _forget_answers(self) -> None:
        """From now on the database has to answer for a full stale period before anything is judged or claimed."""
        self._answering_since = None
        self._was_away = True
        self._host.may_claim = False

    def _note_sleep(self) -> None:
        """A machine that slept finds every heartbeat old, while the monotonic clock stood still."""
        now, before = time.time(), self._beaten_at
        self._beaten_at = now
        if now - before >= settings.STALE_SECONDS:
            self._forget_answers()

    def _steady(self) -> bool:
        since = self._answering_since
        return since is not None and time.monotonic() - since >= settings.STALE_SECONDS

    async def _claim(self) -> None:
        """A full batch is followed by another: a thousand sessions do not wait for twenty ticks."""
        try:
            while True:
                following = time.monotonic() + BETWEEN_CLAIMS * settings.TIME_SCALE
                if await self._host.claim(claiming.claim_some) < claiming.CLAIM_LIMIT:
                    return
                await asyncio.sleep(max(0.0, following - time.monotonic()))
        except DatabaseAway:
            self._host.counters["database_away"] += 1
        except Exception:  # one bad row must not stop the clock; the next tick tries again
            log.exception("host.claim_failed")

    async def _sweep(self) -> None:
        try:
            await self._end_what_the_dead_left()
            await self._host.db.write(ownership.lapse, list)
            await self._read_orders()
            await self._read_calls()
            await self._host.find_answers()
            await self._read_drafts()
            await self._read_sign_ins()
            self._host.webhooks.look()
        except DatabaseAway:
            self._host.counters["database_away"] += 1
        except Exception:  # one bad row must not stop the clock; the next tick tries again
            log.exception("host.tick_failed")

    # --- dead workers --------------------------------------------------------------------------------------------------
    async def _end_what_the_dead_left(self) -> None:
        db, judge_stale = self._host.db, self._steady()
        gone = [worker for worker in await db.read(partial(ownership.namesakes, self._host.me)) if is_gone(worker)]
        await self._merge_spools({worker.uid for worker in gone})
        burial = await db.write(partial(_bury, gone, judge_stale), lambda found: found.events)
        if burial.dead:
            log.info("host.buried", workers=[str(uid) for uid in burial.dead], calls=len(burial.events))

    async def _merge_spools(self, dead: set[UUID]) -> None:
        """Before the burial: a result that was kept is the call's end, and not that nobody knows it."""
        host = self._host
        paths = await host.db.read(partial(spool.left_behind, host.spool_directory, host.me.uid, dead))
        await spool.merge(host.db, paths)

    # --- orders --------------------------------------------------------------------------------------------------------
    async def _read_orders(self) -> None:
        host = self._host
        if host.worker_id is None:
            return
        before = dict(host.supervisors)
        found = await host.db.read(partial(read_orders, host.worker_id))
        for session_id, supervisor in before.items():
            supervisor.ordered(found.get(session_id))
        orphans = found.keys() - before.keys() - host.supervisors.keys()
        if twice := orphans & self._orphans:
            await host.db.write(partial(ownership.disown, host.worker_id, twice))
        self._orphans = set(orphans)

    async def _read_calls(self) -> None:
        host = self._host
        await host.find_calls(host.ready_sessions())
        for uid in await host.db.read(partial(claims.cancelled_by_people, host.me.uid)):
            host.calls.cancel(uid)
        await host.db.write(partial(claims.end_strays, host.me.uid, host.calls.uids), list)

    async def _read_drafts(self) -> None:
        for uid in await self._host.db.read(partial(waiting_drafts, self._host.me.labels)):
            self._host.test(uid)
        await self._host.db.write(_end_lost_tests)

    async def _read_sign_ins(self) -> None:
        for uid in await self._host.db.read(partial(sign_ins.waiting, self._host.me.labels)):
            self._host.authorize(uid)
        await self._host.db.write(sign_ins.end_lost, list)


def _bury(gone: list[Worker], judge_stale: bool) -> Burial:
    dead = {worker.pk: worker for worker in gone}
    if judge_stale:
        dead |= {worker.pk: worker for worker in ownership.stale_workers()}
    return ownership.bury(dead.values())


def waiting_drafts(labels: list[str]) -> list[UUID]:
    """Tests whose message was lost, or that nobody could be told of."""
    mine = ServerDraft.objects.filter(worker_label__in=["", *labels])
    due = mine.filter(state=DraftState.REQUESTED, expires_at__gt=timezone.now())
    return list(due.values_list("uid", flat=True)[:20])


def _end_lost_tests() -> None:
    running = ServerDraft.objects.filter(state=DraftState.RUNNING, created_at__lt=timezone.now() - TEST_GIVEN_UP)
    for uid in running.values_list("uid", flat=True)[:20]:
        update_draft(uid, state=DraftState.FAILED, detail="The worker that ran this test is gone. Test again.")

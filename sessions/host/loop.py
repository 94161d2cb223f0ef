"""The thread of the host: one asyncio loop from the worker's start to its end.

Children are spawned from this thread only: the signal that ends them with us follows the thread that forked them.
"""

import asyncio
import threading
import uuid

import structlog
from django.conf import settings

from servers.audit.writer import writer
from sessions import bus
from sessions.domain import ownership
from sessions.host.db import Database, DatabaseAway
from sessions.host.machine import incarnation
from sessions.host.processes import Processes
from sessions.host.service import Host
from sessions.host.tick import Tick
from sessions.transports.stdio import isolation, prepare_loop

#: after the drain: the last writes, and what a stubborn child takes
GRACE_SECONDS = 3.0
log = structlog.get_logger(__name__)


class HostThread:
    """What a worker starts and stops. `uid` names this life of the process, and its bell."""

    def __init__(self, node: str) -> None:
        self.uid = uuid.uuid4()
        self._node = node
        self._drain_seconds = settings.DRAIN_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="session-host", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait(10)

    def stop(self, drain: bool = True) -> bool:
        """Drain and end; False when the thread did not end in time (its children end with the process)."""
        loop = self._loop
        if loop is None or not self._thread.is_alive():
            return True
        self._drain_seconds = settings.DRAIN_SECONDS if drain else 0.5
        try:
            loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            return True  # it ended by itself
        self._thread.join(self._drain_seconds + GRACE_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                prepare_loop(self._loop)
                runner.run(self._serve())
        except Exception:  # the thread's last line: without it the worker would run on without a host unseen
            log.exception("host.ended_by_fault")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        kept = await isolation()
        me = incarnation(self.uid, self._node, list(settings.WORKER_LABELS), str(kept))
        db = Database()
        host = Host(me, db)
        tick = Tick(host)
        # what was rung before it listens, the tick finds
        listening = asyncio.create_task(bus.Listener(bus.bell_of(self.uid), host.accept, lambda: None).run())
        beating = asyncio.create_task(tick.run())
        sampling = asyncio.create_task(Processes(db, host.live_sessions).run())
        self._started.set()
        log.info("host.started", worker=str(self.uid), node=self._node, isolation=str(kept))
        try:
            await self._stop.wait()
            await tick.close()
            await host.drain(self._drain_seconds)
        finally:
            listening.cancel()
            beating.cancel()
            sampling.cancel()
            await self._farewell(db)
            db.stop()
        log.info("host.stopped", worker=str(self.uid), counters=dict(host.counters))

    async def _farewell(self, db: Database) -> None:
        try:
            await db.write(lambda: ownership.farewell(self.uid))
        except DatabaseAway as exc:
            log.warning("host.farewell_failed", problem=str(exc)[:200])

    def forget(self) -> None:
        """The last waiting writes. In the worker's main thread, after `stop`."""
        writer().stop()

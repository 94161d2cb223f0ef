"""The thread of the host: one asyncio loop from the worker's start to its end.

Only this thread spawns children: the kernel sends their parent-death signal when the thread that forked them ends.
"""

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog
from django.conf import settings

from servers import instance
from servers.audit import payload_privacy
from servers.audit.writer import writer
from sessions import hints
from sessions.connections.process_page import RUNTIME_NOT_USED, UNCONFINED
from sessions.host import directories
from sessions.host.db import Database, DatabaseAway, RowsOrphaned
from sessions.host.processes import Processes
from sessions.host.service import Host
from sessions.host.tick import Tick
from sessions.housekeeping import heartbeats
from sessions.housekeeping.machine import incarnation
from sessions.mcp.transports.stdio import Runtime, Tier, confines, isolation, prepare_loop

#: after the drain: for the last writes and for children that are slow to end
GRACE_SECONDS = 3.0
#: between two removals of folders that are no longer needed
TIDY_SECONDS = 3600.0
log = structlog.get_logger(__name__)


class HostThread:
    """What a worker starts and stops. `uid` identifies this run of the process, and its group for wake-ups."""

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
        """Drain and end. False if the thread did not end in time; its children end with the process."""
        loop = self._loop
        if loop is None or not self._thread.is_alive():
            return True
        self._drain_seconds = settings.DRAIN_SECONDS if drain else 0.5
        try:
            loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            return True  # the loop has already ended
        self._thread.join(self._drain_seconds + GRACE_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                prepare_loop(self._loop)
                self._loop.set_exception_handler(unheard)
                runner.run(self._serve())
        except Exception:  # a worker without a host would look ready and hold no session: `up` starts another one
            log.exception("host.ended_by_fault")
            if not self._stop.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            self._started.set()

    async def _serve(self) -> None:
        kept, tier, reason = await isolation(), UNCONFINED, ""
        if not settings.STDIO_UNCONFINED:
            named = tuple(settings.CONTAINER_RUNTIME)
            found = await confines(Runtime(named, settings.CONTAINER_IMAGE) if named else None)
            tier, reason = str(found.tier), found.reason
            if found.tier is Tier.NONE:
                log.error("host.stdio_not_confined", reason=reason)
            elif named and found.tier is not Tier.CONTAINER:
                log.warning("host.container_runtime_not_used", reason=reason)
                reason = f"{RUNTIME_NOT_USED} {reason}"
        me = incarnation(self.uid, self._node, list(settings.WORKER_LABELS), str(kept), tier, reason)
        db = Database()
        await self._check_instance(db)
        with suppress(DatabaseAway):  # for tests and sign-ins; a session waits for it (Host.claim)
            await db.read(payload_privacy.current)
        host = Host(me, db)
        tick = Tick(host)
        # the tick finds whatever was requested before we listened
        listening = asyncio.create_task(hints.Listener(hints.worker_group(self.uid), host.accept, lambda: None).run())
        beating = asyncio.create_task(tick.run())
        sampling = asyncio.create_task(Processes(db, host.live_sessions).run())
        tidying = asyncio.create_task(self._tidied(db))
        self._started.set()
        log.info("host.started", worker=str(self.uid), node=self._node, isolation=str(kept), confinement=tier)
        try:
            await self._stop.wait()
            await tick.close()
            await host.drain(self._drain_seconds)
        finally:
            listening.cancel()
            beating.cancel()
            sampling.cancel()
            tidying.cancel()
            await self._deregister(db)
            db.stop()
        log.info("host.stopped", worker=str(self.uid), counters=dict(host.counters))

    async def _tidied(self, db: Database) -> None:
        await _read(db, directories.remove_deleted)
        while True:
            await _read(db, directories.remove_ended)
            await asyncio.sleep(TIDY_SECONDS)

    async def _check_instance(self, db: Database) -> None:
        """Runs before the first session opens: a copy of another installation opens none."""
        try:
            for event in await db.write(instance.check, list):
                log.warning("host.instance", action=str(event.action), reason=event.details["reason"])
        except DatabaseAway as exc:  # without the database nothing can be claimed; `up` and the next worker check again
            log.warning("host.instance_not_checked", problem=str(exc)[:200])

    async def _deregister(self, db: Database) -> None:
        try:
            await db.write(lambda: heartbeats.deregister(self.uid))
        except DatabaseAway as exc:
            log.warning("host.farewell_failed", problem=str(exc)[:200])

    def forget(self) -> None:
        """Finish the last waiting writes. Call in the worker's main thread, after `stop`."""
        writer().stop()


async def _read(db: Database, tidy: Callable[[], None]) -> None:
    try:
        await db.read(tidy)
    except DatabaseAway:
        pass
    except Exception:  # a problem with one folder must not block the removal of others
        log.exception("host.not_tidied")


def unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's handler of exceptions that no one awaits. A server deleted in the meantime is not a fault."""
    problem = context.get("exception")
    if isinstance(problem, RowsOrphaned):
        log.info("host.rows_deleted", problem=str(problem)[:200])
    else:
        loop.default_exception_handler(context)

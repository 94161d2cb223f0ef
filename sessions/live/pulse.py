"""Health of the pipeline: whether hints flow and workers are alive. Every page shows it as a pill.

A worker's heartbeat travels the whole way (worker, database, Redis, this process), so its arrival proves that the
pipeline works. If none arrives, the rows show which part is at fault.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from sessions.hints import outage
from sessions.live.reader import Reader
from sessions.models import Worker
from sessions.models.clock import database_now

#: between two checks, however many hints arrive
REST_SECONDS = 0.5
#: in heartbeat intervals: tolerates one late heartbeat, but not two lost ones
LATE = 1.7
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerLiveness:
    """One worker: the seconds since its last heartbeat or its end, and whether a supervisor saw its process end."""

    uid: str
    age: float
    ended: bool


@dataclass(frozen=True, slots=True)
class PipelineHealth:
    """`state`: ok, broker, database, worker or no_worker. `silent` of `workers` do not respond, for up to `age` s."""

    state: str
    silent: int = 0
    workers: int = 0
    age: float = 0.0

    def message(self) -> dict[str, Any]:
        numbers = {"silent": self.silent, "workers": self.workers, "age_ms": round(self.age * 1000)}
        return {"op": "pipeline", "state": self.state, **numbers}

    @property
    def kind(self) -> tuple[str, int, int]:
        return self.state, self.silent, self.workers


class Pulse:
    def __init__(
        self,
        reader: Reader,
        needed: Callable[[], bool],
        notify: Callable[[PipelineHealth], None],
        moved: Callable[[], None],
    ) -> None:
        """`needed`: whether sockets exist. `notify`: the health changed. `moved`: rows changed, maybe without hints."""
        self._reader, self._needed, self._notify, self._moved = reader, needed, notify, moved
        self.health: PipelineHealth | None = None
        self._event = asyncio.Event()
        self._alive: frozenset[str] | None = None
        self._wait = self._late
        loop = self._loop = asyncio.get_running_loop()
        self._last_beat_at = loop.time()  # what was sent before this process listened is not missing

        def broker_changed() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._event.set)

        outage.watch(broker_changed)

    @property
    def _late(self) -> float:
        return LATE * float(settings.HEARTBEAT_SECONDS)

    def beat(self) -> None:
        """A worker's heartbeat arrived."""
        self._last_beat_at = self._loop.time()
        self._event.set()

    def look(self) -> None:
        self._event.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait):
                    await self._event.wait()
            self._event.clear()
            if not self._needed():
                self.health, self._last_beat_at, self._wait = None, self._loop.time(), self._late
                continue
            await self._check()
            await asyncio.sleep(REST_SECONDS)

    async def _check(self) -> None:
        try:
            signs = await self._reader.run(_signs)
        except (DatabaseError, InterfaceError):
            self._say(PipelineHealth("database"))
            return
        except Exception:  # the pulse survives any failure of one check
            log.exception("live.pulse_failed")
            return
        beat_received = self._loop.time() - self._last_beat_at <= self._late
        self._say(self._health(signs, beat_received))
        self._wait = self._next_look(signs)
        if self.health is not None and self.health.state == "broker":
            self._moved()  # no hints arrive to say what changed
        alive = frozenset(sign.uid for sign in signs if not sign.ended and sign.age <= settings.STALE_SECONDS)
        if self._alive is not None and alive != self._alive:
            self._moved()
        self._alive = alive

    def _health(self, signs: list[WorkerLiveness], beat_received: bool) -> PipelineHealth:
        silent = [sign for sign in signs if sign.ended or sign.age > self._late]
        fresh = len(silent) < len(signs)
        if outage.since is not None or (fresh and not beat_received):
            return PipelineHealth("broker")
        if not signs:
            return PipelineHealth("no_worker")
        if silent:
            return PipelineHealth("worker", len(silent), len(signs), max(sign.age for sign in silent))
        return PipelineHealth("ok", 0, len(signs))

    def _next_look(self, signs: list[WorkerLiveness]) -> float:
        """Seconds until the next worker becomes late or counts as gone."""
        marks = [mark - sign.age for sign in signs if not sign.ended for mark in (self._late, settings.STALE_SECONDS)]
        return min([self._late, *(mark + 0.1 for mark in marks if mark > 0)])

    def _say(self, health: PipelineHealth) -> None:
        changed = self.health is None or health.kind != self.health.kind
        self.health = health
        if changed:
            self._notify(health)


def _signs() -> list[WorkerLiveness]:
    """Runs in a reader thread, with the database's clock."""
    now = database_now()
    rows = Worker.objects.values_list("uid", "heartbeat_at", "ended_at")
    return [
        WorkerLiveness(str(uid), (now - (ended or beat)).total_seconds(), ended is not None)
        for uid, beat, ended in rows
    ]

"""The worker's clock survives a failed heartbeat, without which the worker would count as dead and not know it. What a
sleep of the machine makes old is no sign of death."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.host.service import Host
from sessions.host.tick import Tick
from sessions.models import Worker
from tests.sessions.host.make import make_me, make_worker


async def test_a_beat_that_fails_is_reported_and_does_not_stop_the_clock(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HEARTBEAT_SECONDS = 0.01
    beats: list[int] = []
    told: list[str] = []
    twice = asyncio.Event()

    async def beat(_self: Tick) -> None:
        beats.append(1)
        if len(beats) == 1:
            raise RuntimeError("a fault of ours")
        twice.set()

    monkeypatch.setattr(Tick, "_beat", beat)
    monkeypatch.setattr("sessions.host.tick.log.exception", told.append)
    clock = asyncio.create_task(Tick(cast("Host", SimpleNamespace())).run())
    async with asyncio.timeout(5):
        await twice.wait()
    clock.cancel()
    await asyncio.gather(clock, return_exceptions=True)
    assert told == ["host.beat_failed"]


@pytest.mark.django_db
def test_a_sweep_that_the_machine_slept_through_takes_no_worker_for_dead() -> None:
    me, silent = make_me(), make_worker(make_me(node="w2@there"), silent_for=3600)
    own = make_worker(me, silent_for=3600)
    tick = Tick(cast("Host", SimpleNamespace(me=me)))
    tick._beaten_at -= 3600
    assert tick._reap([], True).dead == []
    tick._beaten_at = time.time()
    assert tick._reap([], True).dead == [silent.uid]
    assert list(Worker.objects.values_list("pk", flat=True)) == [own.pk], "a worker never takes itself for dead"

"""The worker's clock survives a failed heartbeat. Without the clock the worker would count as dead and not know it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.host.service import Host
from sessions.host.tick import Tick


async def test_a_beat_that_fails_is_told_and_does_not_stop_the_clock(
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

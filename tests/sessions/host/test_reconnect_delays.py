"""The pauses between two attempts are short in the first minutes of an outage, longer after, and never exceed the
ceiling."""

import asyncio

import pytest

from sessions.connections.lifecycle import Failure
from sessions.host.reconnect_delays import Ceilings, ConnectionLoss, Pace
from sessions.mcp.core.errors import Fault

DOWN = ConnectionLoss(Failure(Fault.CONNECTION_REFUSED, "Nobody is there."))


class Clock:
    """The event loop's time, advanced by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


def pauses(pace: Pace, clock: Clock, seconds: float) -> list[float]:
    """The pauses during an outage of this length, in which each attempt fails at once."""
    found, end = [], clock.now + seconds
    while clock.now < end:
        found.append(pace.delay(DOWN))
        clock.now += found[-1]
    return found


async def test_in_the_first_minutes_of_an_outage_no_pause_is_longer_than_the_early_ceiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    found = pauses(Pace(Ceilings(8.0, 300.0, 60.0), lambda: 0.0), clock, 300.0)
    assert max(found) == 8.0
    assert len(found) < 60


async def test_after_that_the_pause_doubles_up_to_the_ceiling_and_the_breaker_keeps_it_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, pace = Clock(monkeypatch), Pace(Ceilings(8.0, 300.0, 60.0), lambda: 0.0)
    pauses(pace, clock, 300.0)
    clock.now = max(clock.now, 1_300.1)
    assert pace.breaker_open
    assert [pace.delay(DOWN) for _ in range(4)] == [16.0, 32.0, 60.0, 60.0]


async def test_a_server_that_held_begins_with_short_pauses_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pace = Clock(monkeypatch), Pace(Ceilings(8.0, 300.0, 60.0), lambda: 0.0)
    pauses(pace, clock, 900.0)
    pace.ready_for(3_600.0)
    clock.now += 3_600.0
    assert max(pauses(pace, clock, 200.0)) == 8.0


async def test_many_sessions_that_fail_at_once_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    found = pauses(Pace(Ceilings(8.0, 300.0, 60.0), lambda: 40.0), clock, 300.0)
    assert max(found) == 40.0


async def test_an_instance_with_a_low_ceiling_is_never_slower_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    assert max(pauses(Pace(Ceilings(8.0, 300.0, 2.0), lambda: 40.0), clock, 100.0)) == 2.0

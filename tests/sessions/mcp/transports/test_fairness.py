"""No stream may monopolize the event loop: work beyond a slice must be followed by a rest."""

import pytest

from sessions.mcp.transports.fairness import Share


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def worked(share: Share, clock: Clock, seconds: float, *, idle: float = 0.0) -> float:
    clock.now += idle
    share.begin()
    clock.now += seconds
    return share.end()


def test_a_stream_with_little_to_do_never_rests() -> None:
    clock = Clock()
    share = Share(clock)
    assert [worked(share, clock, 0.001, idle=0.001) for _ in range(1_000)] == [0.0] * 1_000


def test_a_stream_that_works_without_a_break_rests_as_long_as_it_worked() -> None:
    clock = Clock()
    share = Share(clock)
    worked_for = rested = 0.0
    for _ in range(1_000):
        rest = worked(share, clock, 0.001)
        worked_for += 0.001
        rested += rest
        clock.now += rest
    assert rested == pytest.approx(worked_for, rel=0.02)


def test_one_long_piece_of_work_is_paid_for_at_once_and_only_once() -> None:
    clock = Clock()
    share = Share(clock)
    rest = worked(share, clock, 0.5)
    assert rest == pytest.approx(0.5)
    assert worked(share, clock, 0.001, idle=rest) == 0.0


def test_a_stream_that_is_thrown_away_rests_twenty_times_as_long() -> None:
    clock = Clock()
    assert worked(Share(clock, lambda: True), clock, 0.01) == pytest.approx(0.2)

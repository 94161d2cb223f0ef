"""The breaker opens after too many failures in a short time; only success or a person closes it."""

from sessions.mcp.core.backoff import Breaker


def test_it_stays_closed_while_failures_are_few_or_far_between() -> None:
    breaker = Breaker(limit=5, window=120)
    assert not any(breaker.failed(second) for second in range(5))
    rare = Breaker(limit=5, window=120)
    assert not any(rare.failed(minute * 60.0) for minute in range(100))


def test_it_opens_with_one_failure_more_than_the_limit_and_stays_open_at_the_slow_pace_that_follows() -> None:
    breaker = Breaker(limit=5, window=120)
    assert [breaker.failed(second) for second in range(6)] == [False] * 5 + [True]
    assert all(breaker.failed(minute * 60.0) for minute in range(1, 10))


def test_after_a_reset_it_counts_again() -> None:
    breaker = Breaker(limit=1, window=10)
    breaker.failed(0)
    assert breaker.failed(1)
    breaker.reset()
    assert not breaker.failed(2)
    assert breaker.failed(3)

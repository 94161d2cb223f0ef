"""Limits that hold over all web processes, each of which counts with an instance of its own."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sessions.agents.policy import counting
from sessions.agents.policy.counting import Counting, Exceeded, InFlight, Rate

RATE = Rate("token:1", 10, 3600.0, "agent_requests_per_second", lambda: "Limit: 10.")
Trips = list[asyncio.Task[Any] | None]
FLIGHT = InFlight("token:1", 3, "agent_calls_in_flight", lambda: "Limit: 3.")


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    """The task of each round trip to Redis."""
    made: Trips = []

    async def noted(self: Any, *given: Any, execute: Any = Pipeline.execute, **more: Any) -> Any:
        made.append(asyncio.current_task())
        return await execute(self, *given, **more)

    monkeypatch.setattr(Pipeline, "execute", noted)
    return made


async def one_request(process: Counting, rate: Rate) -> Exceeded | None:
    async with process.enter([rate]) as exceeded:
        return exceeded


async def told(process: Counting) -> None:
    """Redis knows what is in flight here."""
    async with asyncio.timeout(10):
        while process._keeper is not None:  # noqa: ASYNC110 - another task
            await asyncio.sleep(0.01)


async def admitted(*processes: Counting, times: int) -> int:
    return sum([await one_request(one, RATE) is None for _ in range(times) for one in processes])


async def test_a_rate_holds_over_processes_and_what_is_refused_does_not_count(valkey: Path) -> None:
    first, second = Counting(), Counting()
    assert await admitted(first, second, times=12) == 10
    exceeded = await one_request(first, RATE)
    assert exceeded is not None
    assert (exceeded.words, exceeded.alone, exceeded.retry_seconds > 0) == ("Limit: 10.", False, True)
    assert await one_request(first, Rate("token:2", 10, 3600.0, "n", str)) is None


async def test_what_is_in_flight_is_counted_over_processes_until_it_ends(valkey: Path) -> None:
    first, second = Counting(), Counting()
    async with first.enter([], [FLIGHT]) as one, first.enter([], [FLIGHT]) as two:
        async with second.enter([], [FLIGHT]) as three, second.enter([], [FLIGHT]) as four:
            assert [one, two, three, four is None] == [None, None, None, False]
        async with second.enter([], [FLIGHT]) as again:
            assert again is None

    async def room() -> bool:
        async with second.enter([], [FLIGHT]) as a, second.enter([], [FLIGHT]) as b, second.enter([], [FLIGHT]) as c:
            return (a, b, c) == (None, None, None)

    async with asyncio.timeout(10):
        while not await room():  # noqa: ASYNC110 - what another process wrote can only be asked for
            await asyncio.sleep(0.01)


async def test_what_is_in_flight_for_long_is_not_forgotten_while_other_requests_come_and_go(
    valkey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "RENEW_SECONDS", 0.2)
    monkeypatch.setattr(counting, "FORGOTTEN_AFTER", 2.0)
    first, second, stream = Counting(), Counting(), InFlight("streams:1", 1, "agent_streams", lambda: "Limit: 1.")
    async with first.enter([], [stream]):
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            async with first.enter([], [FLIGHT]):
                await asyncio.sleep(0.03)
        async with second.enter([], [stream]) as exceeded:
            assert exceeded is not None
    await told(first)


async def test_numbers_of_a_dead_process_and_of_strangers_do_not_count(valkey: Path) -> None:
    process = Counting()
    async with Redis(unix_socket_path=str(valkey)) as redis:
        key = "mcpadmin:agents:token:1"
        odd = {"odd": "many", "huge": "9999999 1", "long": f"1 {'9' * 5_000}"}
        await redis.hset(f"{key}:flying", mapping={"dead": "3 1700000000", **odd})
        async with process.enter([], [FLIGHT]) as exceeded:
            assert exceeded is None
        await redis.delete(f"{key}:flying")
        await redis.set(f"{key}:flying", "x")
        async with process.enter([], [FLIGHT]) as exceeded:
            assert exceeded is None
        number = int(time.time() // RATE.seconds)
        await redis.set(process._window_key(RATE, number), "not a number")
        await redis.set(process._window_key(RATE, number - 1), "9" * 5_000)
    assert await admitted(process, times=3) == 3


async def test_without_redis_each_process_counts_alone_and_says_so(valkey: Path) -> None:
    first, second = Counting(), Counting()
    for one in (first, second):
        one._redis = Redis(unix_socket_path=str(valkey.with_name("nothing")), retry=Retry(NoBackoff(), 1))
    assert await admitted(first, second, times=12) == 20
    exceeded = await one_request(first, RATE)
    assert exceeded is not None
    assert exceeded.alone
    async with (
        first.enter([], [FLIGHT]) as one,
        first.enter([], [FLIGHT]) as two,
        first.enter([], [FLIGHT, FLIGHT]) as more,
    ):
        assert [one, two, more is None] == [None, None, False]


async def test_a_request_waits_for_one_round_trip_and_its_end_for_none(valkey: Path, trips: Trips) -> None:
    person = Rate("person:1", 30, 3600.0, "n", str), InFlight("person:1", 9, "n", str)
    process, mine = Counting(), asyncio.current_task()
    async with process.enter([RATE, person[0]], [FLIGHT, person[1]]):
        assert trips == [mine]
    await told(process)
    assert trips.count(mine) == 1
    assert len(trips) == 2


async def test_requests_that_come_at_once_share_round_trips_and_each_counts_once(
    valkey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Counting(), Counting()
    trips: list[int] = []
    execute = Pipeline.execute

    async def counted(pipe: Pipeline, raise_on_error: bool = True) -> Any:
        trips.append(len(pipe))
        return await execute(pipe, raise_on_error)

    monkeypatch.setattr(Pipeline, "execute", counted)
    rates = [Rate(f"other:{number}", 4, 3600.0, "n", str) for number in range(10)]
    asked = [one_request(process, rate) for _ in range(3) for rate in rates for process in (first, second)]
    refused = [exceeded for exceeded in await asyncio.gather(*asked) if exceeded is not None]
    assert len(refused) == 20, "of six requests of each token, four are admitted"
    assert len(trips) < 20
    assert await admitted(first, second, times=12) == 10, "and another limit is as it was"


async def test_when_redis_fails_each_of_the_requests_that_wait_for_it_is_counted_alone(valkey: Path) -> None:
    process = Counting()
    process._redis = Redis(unix_socket_path=str(valkey.with_name("nothing")), retry=Retry(NoBackoff(), 1))
    found = await asyncio.gather(*(one_request(process, RATE) for _ in range(15)))
    assert sum(exceeded is None for exceeded in found) == 10
    assert all(exceeded is None or exceeded.alone for exceeded in found)


async def test_a_request_that_is_given_up_leaves_those_beside_it_counted(valkey: Path) -> None:
    process = Counting()
    requests = [asyncio.create_task(one_request(process, RATE)) for _ in range(6)]
    await asyncio.sleep(0)
    requests[0].cancel()  # it asks only for itself
    requests[3].cancel()  # it waits with others
    found = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, False, False, True, False, False]
    assert [one for one in found if not isinstance(one, BaseException) and one is not None] == []
    assert await one_request(process, RATE) is None


async def test_far_below_a_limit_most_requests_ask_nothing_and_the_limit_still_holds(
    valkey: Path, trips: Trips
) -> None:
    rate, flight = Rate("wide:1", 400, 3600.0, "n", str), InFlight("wide:1", 80, "n", str)
    first, second, mine = Counting(), Counting(), asyncio.current_task()

    async def times_until_refused(process: Counting) -> int:
        admitted = 0
        while admitted <= 400:
            async with process.enter([rate], [flight]) as exceeded:
                if exceeded is not None:
                    return admitted
                admitted += 1
        return admitted

    async with first.enter([rate], [flight]) as exceeded:
        assert exceeded is None
    async with second.enter([rate], [flight]) as exceeded:
        assert exceeded is None
    trips.clear()
    for _ in range(100):
        async with first.enter([rate], [flight]) as exceeded:
            assert exceeded is None
    assert trips.count(mine) < 10
    in_all = 102 + await times_until_refused(second) + await times_until_refused(first)
    assert in_all == 400, "what one process counted in advance it may still use, and nothing more"


async def test_requests_at_once_count_in_advance_only_once(valkey: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        counting, "ANSWER_SECONDS", 10.0
    )  # on a busy machine it would be said to be away, and count alone
    process, rate = Counting(), Rate("token:1", 80, 3600.0, "n", str)
    await one_request(process, rate)
    found = await asyncio.gather(*(one_request(process, rate) for _ in range(60)))
    assert [one for one in found if one is not None] == []
    rest = [await one_request(process, rate) for _ in range(25)]
    assert rest.count(None) == 19


async def test_what_was_counted_in_advance_does_not_outlive_its_window(valkey: Path) -> None:
    rate = Rate("window:1", 40, 3600.0, "n", str)
    process = Counting()
    for _ in range(3):
        assert await one_request(process, rate) is None
    assert process._known[rate.key].advance > 0
    process._known[rate.key].number -= 1  # time went on
    assert not process._counted_in_advance(rate)


async def test_numbers_in_flight_of_a_process_that_asks_nothing_reach_the_others(valkey: Path) -> None:
    first, second = Counting(), Counting()
    wide, narrow = InFlight("wide:2", 16, "n", str), InFlight("wide:2", 1, "n", str)
    async with first.enter([], [wide]):
        pass
    await told(first)
    async with first.enter([], [wide]):  # far below, so nothing was asked

        async def seen() -> bool:
            async with second.enter([], [narrow]) as exceeded:
                return exceeded is not None

        async with asyncio.timeout(10):
            while not await seen():  # noqa: ASYNC110 - what another process wrote can only be asked for
                await asyncio.sleep(0.01)


class Clock:
    """One process that counts a rate, at a time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.rate, self.now = Rate("token:1", most, 60.0, "calls_per_minute", lambda: "Limit."), 600.0
        self.counts = Counter[int]()
        monkeypatch.setattr(counting, "_share", lambda rate: 1.0 - (self.now % 60.0) / 60.0)

    def asks(self) -> Exceeded | None:
        number = int(self.now // 60)
        exceeded = counting._over([self.rate], [(self.counts[number] + 1, self.counts[number - 1])])
        self.counts[number] += exceeded is None
        return exceeded


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_a_small_limit_admits_as_many_in_each_window(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    clock = Clock(monkeypatch, most)
    for _ in range(6 * 60):
        clock.asks()
        clock.now += 1
    assert list(clock.counts.values()) == [most] * 6


@pytest.mark.parametrize("most", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("every", [0.1, 7.0, 29.0])
def test_who_comes_back_when_it_is_told_is_admitted_and_not_before(
    monkeypatch: pytest.MonkeyPatch, most: int, every: float
) -> None:
    clock = Clock(monkeypatch, most)
    for _ in range(300):
        if (exceeded := clock.asks()) is not None:
            clock.now += exceeded.retry_seconds - 0.2
            early = exceeded.retry_seconds > 0.4
            assert not early or clock.asks() is not None
            clock.now += 0.201
            assert clock.asks() is None
        clock.now += every

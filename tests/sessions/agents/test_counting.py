"""Limits that hold over all web processes, each of which counts with an instance of its own."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from sessions.agents.policy.counting import Counting, Exceeded, InFlight, Rate

RATE = Rate("token:1", 10, 3600.0, "agent_requests_per_second", "Limit: 10.")
FLIGHT = InFlight("token:1", 3, "agent_calls_in_flight", "Limit: 3.")


async def one_request(process: Counting, rate: Rate) -> Exceeded | None:
    async with process.enter([rate]) as exceeded:
        return exceeded


async def admitted(*processes: Counting, times: int) -> int:
    return sum([await one_request(one, RATE) is None for _ in range(times) for one in processes])


async def test_a_rate_holds_over_processes_and_what_is_refused_does_not_count(valkey: Path) -> None:
    first, second = Counting(), Counting()
    assert await admitted(first, second, times=12) == 10
    exceeded = await one_request(first, RATE)
    assert exceeded is not None
    assert (exceeded.words, exceeded.alone, exceeded.retry_seconds > 0) == ("Limit: 10.", False, True)
    assert await one_request(first, Rate("token:2", 10, 3600.0, "n", "w")) is None


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


async def test_numbers_of_a_dead_process_and_of_strangers_do_not_count(valkey: Path) -> None:
    process = Counting()
    async with Redis(unix_socket_path=str(valkey)) as redis:
        key = "mcpadmin:agents:token:1"
        await redis.hset(f"{key}:flying", mapping={"dead": "3 1700000000", "odd": "many", "huge": "9999999 1"})
        async with process.enter([], [FLIGHT]) as exceeded:
            assert exceeded is None
        await redis.delete(f"{key}:flying")
        await redis.set(f"{key}:flying", "x")
        async with process.enter([], [FLIGHT]) as exceeded:
            assert exceeded is None
        window = process._window_key(RATE, int(time.time() // RATE.seconds))
        await redis.set(window, "not a number")
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


async def test_a_request_waits_for_one_round_trip_and_its_end_for_none(
    valkey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[asyncio.Task[Any] | None] = []

    async def noted(self: Any, *given: Any, execute: Any = Pipeline.execute, **more: Any) -> Any:
        trips.append(asyncio.current_task())
        return await execute(self, *given, **more)

    monkeypatch.setattr(Pipeline, "execute", noted)
    person = Rate("person:1", 30, 3600.0, "n", "w"), InFlight("person:1", 9, "n", "w")
    process, mine = Counting(), asyncio.current_task()
    async with process.enter([RATE, person[0]], [FLIGHT, person[1]]):
        assert trips == [mine]
    async with asyncio.timeout(10):
        while process._keeper is not None:  # noqa: ASYNC110 - another task
            await asyncio.sleep(0.01)
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
    rates = [Rate(f"other:{number}", 4, 3600.0, "n", "w") for number in range(10)]
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
    requests[0].cancel()  # it asks for itself alone
    requests[3].cancel()  # it waits with others
    found = await asyncio.gather(*requests, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, False, False, True, False, False]
    assert [one for one in found if not isinstance(one, BaseException) and one is not None] == []
    assert await one_request(process, RATE) is None

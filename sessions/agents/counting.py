"""Limits of agents that hold over all web processes, counted in Redis. A request waits for one round trip, and for another
one if its server, bundle or tool has limits of its own.

A rate is a sliding window of two fixed ones. What is in flight is a number per process, kept apart by the name of the
process and the time at which it was written: one that was killed no longer counts after a minute. Redis is not trusted:
whatever stands there can only make a limit stricter or looser, and what is no number is removed. While Redis is away,
each process counts alone, and refusals say so.
"""

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from sessions.hints import outage
from sessions.mcp.core.flow import TokenBucket

ANSWER_SECONDS: Final = 0.5
#: how long Redis is left alone after it did not answer
APART_SECONDS: Final = 1.0
#: a number in flight is written again more often than it is forgotten
RENEW_SECONDS, FORGOTTEN_AFTER = 20.0, 60.0
#: how much may come at once, in seconds of the rate
BURST_SECONDS: Final = 4.0
_MOST_KNOWN: Final = 10_000
_MOST_PROCESSES: Final = 256


@dataclass(frozen=True)
class Rate:
    """`most` requests in `seconds`. `key` says whose. `name` and `words`: of the limit, for a refusal."""

    key: str
    most: int
    seconds: float
    name: str
    words: str


@dataclass(frozen=True)
class InFlight:
    key: str
    most: int
    name: str
    words: str


@dataclass(frozen=True)
class Exceeded:
    """`alone`: only this process was counted."""

    name: str
    words: str
    retry_seconds: float
    alone: bool


class Counting:
    """Of one web process."""

    def __init__(self) -> None:
        config = settings.CHANNEL_LAYERS["default"]["CONFIG"]
        self._redis = Redis.from_url(
            config["hosts"][0],
            retry=Retry(NoBackoff(), 1),
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
        )
        self._prefix = f"{config['prefix']}:agents"
        self._process = secrets.token_hex(8)
        self._apart_until = float("-inf")
        self._flying: Counter[str] = Counter()
        self._landed = asyncio.Event()
        self._stale: set[str] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    @asynccontextmanager
    async def enter(self, rates: Sequence[Rate], flights: Sequence[InFlight] = ()) -> AsyncIterator[Exceeded | None]:
        """Count one request against each rate, and one more of each `flights` until the block ends; or what it exceeds,
        and then nothing was counted."""
        for one in flights:
            self._flying[one.key] += 1
        try:
            exceeded = await self._exceeded(rates, flights)
            if exceeded is not None:
                self._land(flights)
                flights = ()
            elif flights:
                self._keep_telling()
            yield exceeded
        finally:
            self._land(flights)

    async def _exceeded(self, rates: Sequence[Rate], flights: Sequence[InFlight]) -> Exceeded | None:
        for one in flights:
            if self._flying[one.key] > one.most:
                return Exceeded(one.name, one.words, 1.0, alone=False)
        if not rates and not flights:
            return None
        found = await self._run(self._count(rates, flights))
        if found is None:
            return self._admit_alone(rates)
        windows, elsewhere = found
        exceeded = _over(rates, windows)
        for one, others in zip(flights, elsewhere, strict=True):
            if exceeded is None and self._flying[one.key] + others > one.most:
                exceeded = Exceeded(one.name, one.words, 1.0, alone=False)
        if exceeded is not None and rates:
            await self._run(self._take_back(rates))
        return exceeded

    async def _count(
        self, rates: Sequence[Rate], flights: Sequence[InFlight]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Of each rate the requests in this window and in the one before; of each `flights` the number of the other
        processes. Ours is written before theirs is read: of two processes that do so at once, one sees the other."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for rate in rates:
                now, before = self._windows(rate)
                pipe.incrby(now, 1)
                pipe.expire(now, int(2 * rate.seconds) + 1)
                pipe.get(before)
            for one in flights:
                self._put(pipe, one.key)
            for one in flights:
                pipe.hgetall(self._flight_key(one.key))
            answers = await pipe.execute(raise_on_error=False)
        windows = [
            await self._window(rate, *answers[place : place + 3 : 2])
            for rate, place in zip(rates, range(0, 3 * len(rates), 3), strict=True)
        ]
        numbers = answers[len(answers) - len(flights) :]
        return windows, [await self._others(one, number) for one, number in zip(flights, numbers, strict=True)]

    async def _window(self, rate: Rate, current: Any, before: Any) -> tuple[int, int]:
        if not isinstance(current, int) or current < 0:
            await self._redis.delete(self._windows(rate)[0])  # someone else wrote it
            current = 1
        return current, int(before) if isinstance(before, bytes) and before.isdigit() else 0

    async def _others(self, one: InFlight, numbers: Any) -> int:
        if not isinstance(numbers, dict) or len(numbers) > _MOST_PROCESSES:
            await self._redis.delete(self._flight_key(one.key))  # someone else wrote it
            return 0
        return sum(_fresh(text) for name, text in numbers.items() if name != self._process.encode())

    async def _take_back(self, rates: Sequence[Rate]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for rate in rates:
                pipe.incrby(self._windows(rate)[0], -1)
            await pipe.execute(raise_on_error=False)

    def _windows(self, rate: Rate) -> tuple[str, str]:
        number = int(time.time() // rate.seconds)
        return f"{self._prefix}:{rate.key}:{number}", f"{self._prefix}:{rate.key}:{number - 1}"

    def _admit_alone(self, rates: Sequence[Rate]) -> Exceeded | None:
        for rate in rates:
            bucket = self._buckets.get(rate.key)
            if bucket is None:
                bucket = self._buckets[rate.key] = TokenBucket(rate.most / rate.seconds, rate.most)
                while len(self._buckets) > _MOST_KNOWN:
                    self._buckets.popitem(last=False)
            if not bucket.allow(time.monotonic()):
                return Exceeded(rate.name, rate.words, rate.seconds / rate.most, alone=True)
        return None

    # --- what ended, and what goes on for long -------------------------------------------------------------------
    def _land(self, flights: Sequence[InFlight]) -> None:
        for one in flights:
            self._flying[one.key] -= 1
            if self._flying[one.key] <= 0:
                del self._flying[one.key]
            self._stale.add(one.key)
        if flights:
            self._landed.set()
            self._keep_telling()

    def _keep_telling(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Tell the other processes. Beside the requests: none waits for it."""
        try:
            while self._stale or self._flying:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._landed.wait(), RENEW_SECONDS)
                self._landed.clear()
                keys, self._stale = self._stale or set(self._flying), set()
                await self._run(self._write(keys))
        finally:
            self._keeper = None

    async def _write(self, keys: Iterable[str]) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                self._put(pipe, key)
            await pipe.execute(raise_on_error=False)

    def _put(self, pipe: Any, key: str) -> None:
        if self._flying[key]:
            pipe.hset(self._flight_key(key), self._process, f"{self._flying[key]} {time.time():.0f}")
            pipe.expire(self._flight_key(key), int(FORGOTTEN_AFTER))
        else:
            pipe.hdel(self._flight_key(key), self._process)

    def _flight_key(self, key: str) -> str:
        return f"{self._prefix}:{key}:flying"

    # --- Redis ---------------------------------------------------------------------------------------------------
    async def _run(self, work: Any) -> Any:
        """None while Redis is away."""
        if time.monotonic() < self._apart_until:
            work.close()
            return None
        try:
            return await work
        except (TimeoutError, RedisError, OSError) as problem:
            self._apart_until = time.monotonic() + APART_SECONDS
            outage.noticed(problem)
            return None


def _over(rates: Sequence[Rate], windows: Sequence[tuple[int, int]]) -> Exceeded | None:
    now = time.time()
    for rate, (current, before) in zip(rates, windows, strict=True):
        share = 1.0 - (now % rate.seconds) / rate.seconds
        if current + before * share > rate.most:
            return Exceeded(rate.name, rate.words, _wait(rate, current, before, share), alone=False)
    return None


def _wait(rate: Rate, current: int, before: int, share: float) -> float:
    """Seconds until one more request fits, if no other comes."""
    room = rate.most - current
    if before > 0 and room > 0:
        return max(0.1, (share - room / before) * rate.seconds)
    return max(0.1, share * rate.seconds)


def _fresh(text: bytes) -> int:
    """The number that another process wrote within the last minute."""
    count, _, at = text.partition(b" ")
    if not count.isdigit() or not at.isdigit() or len(count) > 5 or time.time() - int(at) > FORGOTTEN_AFTER:
        return 0
    return int(count)

"""Limits of agents across all web processes, counted in Redis. Requests that arrive during a round trip to Redis share
the next one.

A rate is a sliding window made of two fixed windows. Requests in flight are one number per process, stored with the
name of the process and the time at which it was written: the number of a killed process stops counting after a minute.
Redis is not trusted: its values can only make a limit stricter or looser, and a value that is not a number is removed.
While Redis is unreachable, each process counts alone, and refusals say so.

A round trip takes a tenth of a request's time, so most requests that are far below a limit make none: a process counts
a few requests of a window in advance (a quarter of what is left), and reads the numbers in flight of other processes
once a second. Near a limit every request asks Redis. Requests that one process counted in advance and did not use are
lost to the others, so with several processes a limit may refuse up to a quarter of the rate too early. Numbers in
flight that were not read in time may exceed a limit by a quarter for each further process.
"""

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from servers.numbers import whole_number
from sessions.hints import outage
from sessions.mcp.core.flow import TokenBucket

ANSWER_SECONDS: Final = 0.5
#: how long Redis is not asked after it did not respond
APART_SECONDS: Final = 1.0
#: a number in flight is renewed well before it expires
RENEW_SECONDS, FORGOTTEN_AFTER = 20.0, 60.0
#: an agent often sends its next request at once, so its number is lowered only after this time
LANDING_SECONDS: Final = 0.05
#: the size of a burst, in seconds of the rate
BURST_SECONDS: Final = 4.0
#: a process uses 1/N of what is left of a limit without asking Redis; a limit below N is asked for each request
ADVANCE_PART: Final = 4
#: how long the numbers in flight of other processes stay valid while they are far below the limit
ELSEWHERE_SECONDS: Final = 1.0
_MOST_KNOWN: Final = 10_000
_MOST_PROCESSES: Final = 256


Commands = list[tuple[str | int, ...]]


@dataclass(frozen=True)
class Rate:
    """`most` requests in `seconds`. `key`: whose requests. `name`, `describe`: name and description of the limit, for a
    refusal."""

    key: str
    most: int
    seconds: float
    name: str
    describe: Callable[[], str]


@dataclass(frozen=True)
class InFlight:
    key: str
    most: int
    name: str
    describe: Callable[[], str]


@dataclass(frozen=True)
class Exceeded:
    """`alone`: only requests of this process were counted."""

    name: str
    words: str
    retry_seconds: float
    alone: bool


@dataclass
class _Window:
    """What this process knows about a rate. `before`: the final count of the window before `number`. `advance`: how
    many requests of this window are counted in advance. `next_advance`: how many the next round trip counts in
    advance."""

    number: int
    before: int
    advance: int = 0
    next_advance: int = 0


@dataclass
class _Asked:
    """A window of one request, which counts as the first of `count`. `before`: as in _Window; None if it has to be
    read."""

    rate: Rate
    number: int
    count: int = 1
    before: int | None = None


@dataclass(frozen=True)
class _Elsewhere:
    """The number in flight of the other processes at a time (time.monotonic)."""

    count: int
    at: float


@dataclass(frozen=True)
class _Written:
    """A number in flight as stored in Redis, and when its lifetime began (time.monotonic)."""

    count: int
    at: float


class Counted:
    """One request against these rates; it may turn out that it does not count. `exceeded`: a limit that it exceeds, so it
    was not counted."""

    def __init__(self, counting: "Counting", rates: Sequence[Rate], at: float, exceeded: Exceeded | None) -> None:
        self._counting, self._rates, self._at, self.exceeded = counting, rates, at, exceeded

    async def take_back(self) -> None:
        if self.exceeded is None and self._rates:
            rates, self._rates = self._rates, ()
            await self._counting.take_back(rates, self._at)


class Counting:
    """The limits of one web process."""

    def __init__(self) -> None:
        config = settings.CHANNEL_LAYERS["default"]["CONFIG"]
        self._redis = Redis.from_url(
            config["hosts"][0],
            retry=Retry(NoBackoff(), 1),
            # One timeout for all of a request's commands: the client would make one for each, and a task.
            socket_timeout=None,
            socket_connect_timeout=ANSWER_SECONDS,
        )
        self._prefix = f"{config['prefix']}:agents"
        self._process = secrets.token_hex(8)
        self._apart_until = float("-inf")
        self._flying: Counter[str] = Counter()
        self._landed = asyncio.Event()
        self._stale: set[str] = set()
        self._written: dict[str, _Written] = {}
        self._known: OrderedDict[str, _Window] = OrderedDict()
        self._elsewhere: OrderedDict[str, _Elsewhere] = OrderedDict()
        self._keeper: asyncio.Task[None] | None = None
        self._asking = False
        self._waiting: list[tuple[Commands, asyncio.Future[list[Any]]]] = []
        self._shared: asyncio.Task[None] | None = None
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    @asynccontextmanager
    async def enter(self, rates: Sequence[Rate], flights: Sequence[InFlight] = ()) -> AsyncIterator[Exceeded | None]:
        """Count one request against each rate, and one more in flight for each of `flights` until the block ends. If a
        limit is exceeded, yields it and counts nothing."""
        for one in flights:
            self._flying[one.key] += 1
        try:
            exceeded = await self._exceeded(rates, flights)
            if exceeded is not None:
                self._land(flights)
                flights = ()
            elif flights:
                self._keep_publishing()
            yield exceeded
        finally:
            self._land(flights)

    @asynccontextmanager
    async def revocable(
        self, rates: Sequence[Rate], more: Sequence[Rate], flights: Sequence[InFlight]
    ) -> AsyncIterator[Counted]:
        """As `enter`. What is counted against `rates` can be taken back."""
        at = time.time()
        async with self.enter([*more, *rates], flights) as exceeded:
            yield Counted(self, rates, at, exceeded)

    async def take_back(self, rates: Sequence[Rate], counted_at: float) -> None:
        await self._run(self._take_back(rates, counted_at))

    async def _exceeded(self, rates: Sequence[Rate], flights: Sequence[InFlight]) -> Exceeded | None:
        for one in flights:
            if self._flying[one.key] > one.most:
                return Exceeded(one.name, one.describe(), 1.0, alone=False)
        asked_flights = [one for one in flights if not self._far_below(one)]
        asked_rates = [rate for rate in rates if not self._counted_in_advance(rate)]
        if len(asked_flights) < len(flights):
            self._publish_soon(flights)
        if not asked_rates and not asked_flights:
            return None
        now = time.time()
        found = await self._run(self._count(asked_rates, asked_flights, now))
        if found is None:
            return self._admit_alone(asked_rates)
        windows, elsewhere = found
        exceeded = _over(asked_rates, windows)
        for one, others in zip(asked_flights, elsewhere, strict=True):
            if exceeded is None and self._flying[one.key] + others > one.most:
                exceeded = Exceeded(one.name, one.describe(), 1.0, alone=False)
        if exceeded is not None and rates:
            await self._run(self._take_back(rates, now))
        return exceeded

    def _far_below(self, one: InFlight) -> bool:
        known, mine = self._elsewhere.get(one.key), self._flying[one.key]
        return (
            known is not None
            and time.monotonic() - known.at < ELSEWHERE_SECONDS
            and mine <= one.most // ADVANCE_PART
            and mine + known.count <= one.most // 2
        )

    def _counted_in_advance(self, rate: Rate) -> bool:
        """Uses up one of them."""
        known = self._known.get(rate.key)
        if known is None or not known.advance or known.number != int(time.time() // rate.seconds):
            return False
        known.advance -= 1
        return True

    async def _count(
        self, rates: Sequence[Rate], flights: Sequence[InFlight], now: float
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Of each rate the requests in this window and in the one before; of each `flights` the number of the other
        processes. Ours is written before theirs is read: of two processes that do so at once, one sees the other."""
        windows = [_Asked(rate, int(now // rate.seconds)) for rate in rates]
        commands: Commands = []
        for one in windows:
            known = self._known.get(one.rate.key)
            if known is not None and known.number == one.number:
                one.before, one.count = known.before, 1 + known.next_advance
                known.next_advance = 0  # until this is answered: concurrent requests would take it several times
            commands.append(("INCRBY", self._window_key(one.rate, one.number), one.count))
            if one.before is None:
                commands.append(("EXPIRE", self._window_key(one.rate, one.number), _lifetime(one.rate)))
                commands.append(("GET", self._window_key(one.rate, one.number - 1)))
        for flight in flights:
            commands += self._publish_commands(flight.key)
        commands += [("HGETALL", self._flight_key(flight.key)) for flight in flights]
        answers = await self._ask(commands)
        found, at = [], 0
        for one in windows:
            asked = 1 if one.before is not None else 3
            found.append(await self._window(one, answers[at : at + asked]))
            at += asked
        others = answers[len(answers) - len(flights) :]
        return found, [await self._others(flight, numbers) for flight, numbers in zip(flights, others, strict=True)]

    async def _window(self, asked: "_Asked", answers: list[Any]) -> tuple[int, int]:
        """The count with this request as the last one, and that of the window before."""
        rate, key, current, before = asked.rate, self._window_key(asked.rate, asked.number), answers[0], asked.before
        if before is None:
            text = answers[2]
            before = _whole(text) or 0
            self._known[rate.key] = _Window(asked.number, before)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        elif current == asked.count:  # Redis lost it, and its lifetime
            await self._redis.expire(key, _lifetime(rate))
        if not isinstance(current, int) or current < asked.count:
            await self._redis.delete(key)  # someone else wrote it
            return 1, before
        left = rate.most - current - _counted_of(before, _share(rate))
        known = self._known.get(rate.key)
        if known is not None and known.number == asked.number:
            known.next_advance = max(0, left // ADVANCE_PART - 1)
        if asked.count > 1:
            if left < 0:
                await self._ask([("INCRBY", key, 1 - asked.count)])
            elif known is not None and known.number == asked.number:
                known.advance += asked.count - 1
            return current - asked.count + 1, before
        return current, before

    async def _others(self, one: InFlight, numbers: Any) -> int:
        if not isinstance(numbers, dict) or len(numbers) > _MOST_PROCESSES:
            await self._redis.delete(self._flight_key(one.key))  # someone else wrote it
            self._written.pop(one.key, None)
            return 0
        count = sum(_fresh(text) for name, text in numbers.items() if name != self._process.encode())
        self._elsewhere[one.key] = _Elsewhere(count, time.monotonic())
        while len(self._elsewhere) > _MOST_KNOWN:
            self._elsewhere.popitem(last=False)
        return count

    async def _take_back(self, rates: Sequence[Rate], counted_at: float) -> None:
        """Also for a rate that did not ask Redis: what is counted in advance stays as it is."""
        commands: Commands = []
        for rate in rates:
            key = self._window_key(rate, int(counted_at // rate.seconds))
            commands += [("INCRBY", key, -1), ("EXPIRE", key, _lifetime(rate))]  # Redis may have lost the key
        await self._ask(commands)

    def _window_key(self, rate: Rate, number: int) -> str:
        return f"{self._prefix}:{rate.key}:{number}"

    def _admit_alone(self, rates: Sequence[Rate]) -> Exceeded | None:
        for rate in rates:
            bucket = self._buckets.get(rate.key)
            if bucket is None:
                bucket = self._buckets[rate.key] = TokenBucket(rate.most / rate.seconds, rate.most)
                while len(self._buckets) > _MOST_KNOWN:
                    self._buckets.popitem(last=False)
            if not bucket.allow(time.monotonic()):
                return Exceeded(rate.name, rate.describe(), rate.seconds / rate.most, alone=True)
        return None

    # --- requests that ended, and long-running ones --------------------------------------------------------------
    def _land(self, flights: Sequence[InFlight]) -> None:
        for one in flights:
            self._flying[one.key] -= 1
            if self._flying[one.key] <= 0:
                del self._flying[one.key]
        self._publish_soon(flights)

    def _publish_soon(self, flights: Sequence[InFlight]) -> None:
        if flights:
            self._stale.update(one.key for one in flights)
            self._landed.set()
            self._keep_publishing()

    def _keep_publishing(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Tell the other processes, in the background: no request waits for it."""
        try:
            while self._stale or self._flying:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._landed.wait(), RENEW_SECONDS)
                    await asyncio.sleep(LANDING_SECONDS)
                self._landed.clear()
                due = {key for key in self._flying if not self._is_fresh(key)}  # also beside steady traffic of others
                keys, self._stale = self._stale | due, set()
                await self._run(self._write(keys))
        finally:
            self._keeper = None

    async def _write(self, keys: Iterable[str]) -> None:
        if commands := [command for key in keys for command in self._publish_commands(key)]:
            await self._ask(commands)

    def _publish_commands(self, key: str) -> Commands:
        """The commands that store how many requests of this process are in flight; none if Redis has that number."""
        count, written, now = self._flying[key], self._written.get(key), time.monotonic()
        if not count:
            return [] if self._written.pop(key, None) is None else [("HDEL", self._flight_key(key), self._process)]
        fresh = self._is_fresh(key)
        if written is not None and fresh and written.count == count:
            return []
        commands: Commands = [("HSET", self._flight_key(key), self._process, f"{count} {time.time():.0f}")]
        if written is None or not fresh:
            commands.append(("EXPIRE", self._flight_key(key), int(FORGOTTEN_AFTER)))
        self._written[key] = _Written(count, written.at if written is not None and fresh else now)
        return commands

    def _is_fresh(self, key: str) -> bool:
        written = self._written.get(key)
        return written is not None and time.monotonic() - written.at < RENEW_SECONDS

    def _flight_key(self, key: str) -> str:
        return f"{self._prefix}:{key}:flying"

    # --- Redis ---------------------------------------------------------------------------------------------------
    async def _ask(self, commands: Commands) -> list[Any]:
        """The answers, including errors of single commands. Commands that arrive during a round trip share the next
        one."""
        if not self._asking:
            self._asking = True
            try:
                return await self._pipelined(commands)
            finally:
                self._asking = False
                self._ask_shared()
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, future))
        return await future

    def _ask_shared(self) -> None:
        if self._waiting and not self._asking:
            self._asking = True
            self._shared = asyncio.create_task(self._answer(self._waiting))
            self._waiting = []

    async def _answer(self, waiting: list[tuple[Commands, asyncio.Future[list[Any]]]]) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await self._pipelined([command for commands, _ in waiting for command in commands])
            at = 0
            for commands, future in waiting:
                if not future.done():  # its request was given up
                    future.set_result(answers[at : at + len(commands)])
                at += len(commands)
        except Exception as problem:  # each of the requests that wait translates it, as if it had asked itself
            for _, future in waiting:
                if not future.done():
                    future.set_exception(problem)
        finally:
            self._asking = False
            self._ask_shared()

    async def _pipelined(self, commands: Commands) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute(raise_on_error=False))

    async def _run(self, work: Any) -> Any:
        """None while Redis is unreachable."""
        if time.monotonic() < self._apart_until:
            work.close()
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await work
        except (TimeoutError, RedisError, OSError) as problem:
            self._apart_until = time.monotonic() + APART_SECONDS
            self._written.clear()
            outage.noticed(problem)
            return None


def _lifetime(rate: Rate) -> int:
    return int(2 * rate.seconds) + 1


def _share(rate: Rate) -> float:
    """The fraction of the previous window that counts."""
    return 1.0 - (time.time() % rate.seconds) / rate.seconds


def _counted_of(before: int, share: float) -> int:
    """How many requests of the previous window count. A whole number: with a small limit, a fraction would refuse every
    request of the window."""
    return int(before * share)


def _over(rates: Sequence[Rate], windows: Sequence[tuple[int, int]]) -> Exceeded | None:
    for rate, (current, before) in zip(rates, windows, strict=True):
        share = _share(rate)
        if current + _counted_of(before, share) > rate.most:
            return Exceeded(rate.name, rate.describe(), _wait(rate, current, before, share), alone=False)
    return None


def _wait(rate: Rate, current: int, before: int, share: float) -> float:
    """Seconds until one more request fits, if no other comes. `current` includes the refused one."""
    room, others = rate.most - current, current - 1
    if room >= 0:
        return max(0.1, (share - (room + 1) / before) * rate.seconds)
    too_many = max(0.0, 1 - rate.most / max(1, others))  # in the next window, they are those of the window before
    return max(0.1, (share + too_many) * rate.seconds)


def _fresh(text: bytes) -> int:
    """The number that another process wrote within the last minute."""
    number, _, at = text.partition(b" ")
    count, written = _whole(number), _whole(at)
    if count is None or written is None or len(number) > 5 or time.time() - written > FORGOTTEN_AFTER:
        return 0
    return count


def _whole(found: Any) -> int | None:
    """Anyone who can write to Redis can write anything there."""
    return whole_number(found.decode("latin-1")) if isinstance(found, bytes) else None

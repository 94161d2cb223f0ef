"""A server writes ten thousand log lines a second while another one is called ten times a second."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.benchmarks.load import percentile
from tests.faults import holdings
from tests.faults.checkers import left_behind
from tests.faults.field import Field, set_up
from tests.faults.size import Report, Size

CALLS_A_SECOND = 10
#: relative to the neighbour's time alone: the flood, the product and the caller share two cores
NEIGHBOUR_RATIO = 2.0
#: SQLite returns descriptors to connections at its own pace, and a reader thread may have opened its first one
ROOM = {"mib": 100, "descriptors": 10, "threads": 3}
#: a server's lines reach the log at most this long after it wrote them
WRITTEN_SECONDS = 60.0
SHED = re.compile(r"(\d+) lines? (?:was|were) dropped")


async def flood(size: Size, seconds: float = 60.0, rate: int = 10_000) -> tuple[list[str], Report]:
    async with set_up("flood", size, request_seconds=round(5 * seconds)) as field:  # back-pressure makes it last longer
        seconds, worker = size.seconds(seconds, 5), field.running.workers["w1"].pid
        flooding, called = field.servers[0], field.servers[1]
        await _latencies(field, called, 2)
        alone = await _latencies(field, called, max(3.0, seconds / 6))
        before = await field.off_loop(holdings.of, worker)
        log = Log(field, flooding)
        async with log.watched():
            cpu = holdings.cpu_seconds(worker)
            flood_call = await field.tabs[0].ask(flooding, "flood", tool="flood", seconds=seconds, rate=rate)
            beside = await _latencies(field, called, seconds)
            cpu = holdings.cpu_seconds(worker) - cpu
            await field.settled()
            sent = int(await field.off_loop(field.running.do, "answer_of", flood_call["call"]))
            uncounted = await log.uncounted(sent)
        # measured before and after, because one measurement says little on a shared machine
        alone = sorted(alone + await _latencies(field, called, max(3.0, seconds / 6)))
        after = await field.off_loop(holdings.of, worker)
        report = field.report
        report.say(offered_a_second=rate, taken=sent, taken_a_second=round(sent / seconds), before=before, after=after)
        report.say(stored=log.stored, shed=log.shed, uncounted=uncounted, worker_cpu_percent=100 * cpu / seconds)
        report.say(neighbour_calls=len(beside), refused=sum(field.rejected.values()))
        for share, name in ((0.5, "p50"), (0.95, "p95")):
            report.say(
                **{f"{name}_ms": f"{percentile(alone, share):.1f} alone, {percentile(beside, share):.1f} beside"}
            )
        wrong = left_behind(before, after, ROOM)
        return wrong + _found(field, size, alone, beside, uncounted), report


def _found(field: Field, size: Size, alone: list[float], beside: list[float], uncounted: int) -> list[str]:
    ratio = percentile(beside, 0.95) / percentile(alone, 0.95)
    slow = [f"p95 of the neighbour grew {ratio:.1f} times"] * (ratio > size.promise(NEIGHBOUR_RATIO))
    lost = [f"{uncounted} lines are neither in the log nor counted as dropped"] * (uncounted != 0)
    refused = [f"the neighbour's calls were refused: {dict(field.rejected)}"] * bool(field.rejected)
    unheard = [f"the ends of {field.unheard} calls never reached their tab"] * bool(field.unheard)
    return slow + lost + refused + unheard


async def _latencies(field: Field, server: str, seconds: float) -> list[float]:
    """Sorted milliseconds from the request to the final state that the tab receives."""
    took: list[float] = []

    async def one(number: int) -> None:
        began, tab = time.monotonic(), field.tabs[number % len(field.tabs)]
        answer = await tab.ask(server, f"beside-{began}")
        if answer["op"] != "accepted":
            field.rejected[answer["message"]] += 1
            return
        try:
            await tab.end_of(answer["call"])
        except TimeoutError:
            field.unheard += 1
            return
        took.append((time.monotonic() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for number in range(round(seconds * CALLS_A_SECOND)):
            group.create_task(one(number))
            await asyncio.sleep(1 / CALLS_A_SECOND)
    return sorted(took)


@dataclass
class Log:
    """Tracks the log lines of one server. The log forgets old lines, so this collects mcpadmin's own as they appear."""

    scene: Field
    server: str
    newest: int = 0
    first: int = 0
    said: dict[int, str] = field(default_factory=dict)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        await self._look()
        self.first, self.said = self.newest, {}
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(0.3)

    async def _look(self) -> None:
        state: dict[str, Any] = await self.scene.off_loop(self.scene.running.do, "log_state", self.server)
        self.newest = state["newest"]
        self.said |= {seq: text for seq, text in state["said"] if seq > self.first}

    @property
    def shed(self) -> int:
        return sum(int(told[1]) for text in self.said.values() if (told := SHED.match(text)))

    @property
    def stored(self) -> int:
        return self.newest - self.first - len(self.said)

    async def uncounted(self, sent: int) -> int:
        """How many of `sent` lines are neither stored nor reported as dropped, once the last one could have arrived."""
        until = time.monotonic() + WRITTEN_SECONDS
        while time.monotonic() < until:
            await self._look()
            if sent == self.stored + self.shed:
                break
            await asyncio.sleep(0.3)
        return sent - self.stored - self.shed

"""The set-up of a fault run: a plant, three servers that record their effects (stdio, HTTP of both eras), people who
call them, and the final check of all histories.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from tests.faults.checkers import Histories, gaps, problems, read_calls, read_effects, read_fences
from tests.faults.people import Gone, Person, people
from tests.faults.plant import Plant, auntil, http_effects, plant, until
from tests.faults.size import Report, Size

SETTLE_SECONDS = 90.0
CATCH_UP_SECONDS = 40.0


@dataclass
class Field:
    running: Plant
    servers: list[str]
    tabs: list[Person]
    dice: random.Random
    report: Report
    told: Histories = field(default_factory=Histories)
    rejected: Counter[str] = field(default_factory=Counter)
    #: seconds until each call request got its reply
    answered: list[float] = field(default_factory=list)
    gone: int = 0
    #: calls whose final state never reached the tab that requested them
    unheard: int = 0
    _numbers: "count[int]" = field(default_factory=count)

    async def off_loop(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run blocking work in a thread while the sockets stay alive."""
        return await asyncio.to_thread(partial(work, *args, **kwargs))

    # --- calls -------------------------------------------------------------------------------------------------------
    async def order(self, seconds: float = 0.0, server: str = "") -> None:
        """Request one call without waiting for its final state."""
        number = next(self._numbers)
        tab, chosen = self.tabs[number % len(self.tabs)], server or self.dice.choice(self.servers)
        try:
            took, answer = await tab.timed_ask(chosen, f"effect-{number}", seconds=round(seconds, 3))
        except Gone:
            self.gone += 1
            return
        self.answered.append(took)
        if answer["op"] == "accepted":
            self.told.accepted.add(answer["call"])
        else:
            self.gone += "Check whether the change was made" in answer["message"]  # it may have a row or not
            self.rejected[answer["message"]] += 1

    async def traffic(self, rate: float, longest: float = 0.5) -> None:
        """Request `rate` calls a second until cancelled, then wait for the pending ones."""
        began, pending = time.monotonic(), set[asyncio.Task[None]]()
        try:
            for number in count(1):
                task = asyncio.create_task(self.order(self.dice.uniform(0, longest)))
                pending.add(task)
                task.add_done_callback(pending.discard)
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        finally:
            await asyncio.gather(*pending, return_exceptions=True)

    @asynccontextmanager
    async def under_traffic(self, rate: float) -> AsyncIterator[None]:
        task = asyncio.create_task(self.traffic(rate))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    # --- the end -----------------------------------------------------------------------------------------------------
    async def ready(self) -> None:
        await self.off_loop(self.running.await_ready, *self.servers)

    async def settled(self) -> None:
        await auntil(lambda: self.running.do("unfinished") == 0, SETTLE_SECONDS, "some call never ended")

    async def judged(self) -> list[str]:
        """Check the histories. Every tab has listened to the audit feed from its first row."""
        await self.settled()
        newest = await self.off_loop(self.running.do, "newest")
        for tab in self.tabs:
            await auntil(lambda tab=tab: tab.heard("audit") >= newest, CATCH_UP_SECONDS, "a tab never caught up")
        await self.off_loop(self.read)
        wrong = problems(self.told)
        for number, tab in enumerate(self.tabs):
            seqs = [seq for seq in tab.seqs["audit"] if seq <= newest]
            wrong += [f"tab {number}: {words}" for words in gaps(seqs, newest)]
        return wrong + await self.off_loop(self.children)

    def read(self) -> None:
        """Read the current histories."""
        self.told.effects = read_effects(self.running.effects_file)
        self.told.calls = read_calls(self.running.do("histories"))
        self.told.fences = read_fences(self.running.do("fences"))
        self.told.chain_whole = self.running.do("chain_is_whole")

    def children(self, seconds: float = CATCH_UP_SECONDS) -> list[str]:
        """Check that each stdio session has one process and that no process of a dead worker is left. A worker that was
        overtaken takes a moment to end its own, at most `seconds`."""
        self.running.await_ready(*self.servers)
        wanted = sum(row["slug"].startswith("stdio") for row in self.running.do("sessions"))
        alive: list[int] = []

        def as_wanted() -> bool:
            alive[:] = [process.pid for process in self.running.stdio_servers()]
            return len(alive) == wanted

        try:
            until(as_wanted, seconds)
        except AssertionError:
            return [f"stdio servers alive: {alive}, wanted {wanted}"]
        return []

    def summary(self) -> None:
        states = dict(Counter(call.state for call in self.told.calls))
        calls, effects = len(self.told.calls), len(self.told.effects)
        said = {"rejected": dict(self.rejected)} if self.rejected else {}
        said |= {"answers_lost_with_the_socket": self.gone} if self.gone else {}
        duplicates = effects - len({one.id for one in self.told.effects})
        self.report.say(calls=calls, effects=effects, duplicates=duplicates, states=states, **said)


@asynccontextmanager
async def set_up(
    scene: str,
    size: Size,
    *,
    workers: tuple[str, ...] = ("w1",),
    tabs: int = 4,
    app: str = "mcpadmin.worker",
    through: Callable[[str], str] = str,
    request_seconds: int = 60,
    **options: Any,
) -> AsyncIterator[Field]:
    """Set up everything and wait until it is ready. `through` may put a proxy before an HTTP server: it maps the
    server's URL to the proxy's."""
    async with AsyncExitStack() as stack:
        running = await asyncio.to_thread(stack.enter_context, plant(**options))
        await asyncio.to_thread(running.do, "user", "ada", superuser=True)
        for node in workers:
            await asyncio.to_thread(running.start_worker, node, app=app)
        legacy = await stack.enter_async_context(http_effects(running))
        modern = await stack.enter_async_context(http_effects(running, "modern"))
        patience = {"request_timeout_seconds": request_seconds}
        servers = [
            await asyncio.to_thread(running.register_effects, "stdio", **patience),
            await asyncio.to_thread(running.register_effects, "legacy", url=through(legacy), **patience),
            await asyncio.to_thread(running.register_effects, "modern", url=through(modern), **patience),
        ]
        await asyncio.to_thread(running.await_ready, *servers)
        heads = await stack.enter_async_context(people(running, tabs, "audit"))
        yield Field(running, servers, heads, size.dice(scene), Report(scene, size))

"""The web process is killed again and again while events flow: every browser receives each event once and in order."""

import asyncio
import time
from contextlib import AsyncExitStack, suppress

from tests.faults.checkers import gaps
from tests.faults.people import Person, people
from tests.faults.plant import Plant, auntil, plant
from tests.faults.size import Report, Size

BATCH = 10
LONGEST_LIFE = 6.0
CATCH_UP_SECONDS = 180.0


async def kill_web(size: Size, kills: int = 50, sockets: int = 200, events: int = 10_000) -> tuple[list[str], Report]:
    report, dice = Report("web SIGKILL", size), size.dice("web kills")
    kills, sockets, events = size.count(kills, 2), size.count(sockets, 10), size.count(events, 200)
    async with AsyncExitStack() as stack:
        running = await asyncio.to_thread(stack.enter_context, plant())
        await asyncio.to_thread(running.do, "user", "ada", superuser=True)
        tabs = await stack.enter_async_context(people(running, sockets, "audit"))
        recording = asyncio.create_task(record(running, events, kills * LONGEST_LIFE / 2))
        for _ in range(kills):
            await asyncio.sleep(dice.uniform(0.2, LONGEST_LIFE))
            await asyncio.to_thread(running.kill_web)
            await asyncio.to_thread(running.start_web)
        await recording
        newest = await asyncio.to_thread(running.do, "newest")
        behind = [newest - tab.heard("audit") for tab in tabs if tab.heard("audit") < newest]
        took = await caught_up(tabs, newest)
        wrong = [f"tab {n}: {words}" for n, tab in enumerate(tabs) for words in gaps(tab.seqs["audit"], newest)]
        wrong += [f"tab {n} was told {tab.strange[:2]}" for n, tab in enumerate(tabs) if tab.strange]
    connects = sum(tab.connects for tab in tabs)
    report.say(kills=kills, sockets=sockets, events=newest, connects=connects, last_caught_up_after_seconds=took)
    report.say(behind_at_the_end=f"{len(behind)} tabs by {sum(behind)} events")
    return wrong, report


async def record(running: Plant, events: int, seconds: float) -> None:
    """Record events in small commits, spread over the run."""
    began = time.monotonic()
    for done in range(0, events, BATCH):
        await asyncio.to_thread(running.do, "record", min(BATCH, events - done), 2)
        await asyncio.sleep(max(0.0, began + seconds * done / events - time.monotonic()))


async def caught_up(tabs: list[Person], newest: int) -> float:
    began = time.monotonic()
    with suppress(AssertionError):  # `gaps` reports more detail
        await auntil(lambda: all(tab.heard("audit") >= newest for tab in tabs), CATCH_UP_SECONDS)
    return time.monotonic() - began

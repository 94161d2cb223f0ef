"""SIGKILL of workers at random instants with calls in flight, on stdio and HTTP; two workers take over sessions."""

import asyncio
import time
from dataclasses import replace

from tests.faults.checkers import problems, too_few_successes
from tests.faults.field import Field, set_up
from tests.faults.plant import auntil
from tests.faults.size import Report, Size

IN_FLIGHT = 20
LONGEST_CALL = 0.8
NODES = ("w1", "w2")
PROMISED_SECONDS = 30.0


async def kill_workers(size: Size, kills: int = 100) -> tuple[list[str], Report]:
    async with set_up("worker SIGKILL", size, workers=NODES) as field:
        return await kill_workers_of(field, size, kills)


async def kill_workers_of(field: Field, size: Size, kills: int = 100) -> tuple[list[str], Report]:
    """The scene on a field that another scene may have used."""
    earlier = {call.uid for call in field.told.calls}
    ends = [await one_kill(field, field.dice.choice([0.0, 0.0, 4.0])) for _ in range(size.count(kills, 2))]
    wrong = await field.judged()
    own = replace(field.told, calls=[call for call in field.told.calls if call.uid not in earlier])
    wrong += too_few_successes(own, len(ends) * IN_FLIGHT)
    field.summary()
    field.report.say(kills=len(ends), seconds_until_all_calls_ended=f"at most {max(ends):.1f}")
    return wrong, field.report


async def kill_workers_at_real_times(size: Size, kills: int = 5) -> tuple[list[str], Report]:
    """A killed worker stays dead until the other one has ended its calls (at most 45 s)."""
    async with set_up("worker SIGKILL, real times", size, workers=NODES, times={}) as field:
        ends = [await one_kill(field, PROMISED_SECONDS + 15) for _ in range(size.count(kills, 1))]
        wrong = await field.judged() + too_few_successes(field.told, len(ends) * IN_FLIGHT)
        field.summary()
        slow = [f"calls ended {took:.1f} s after the kill" for took in ends if took > size.promise(PROMISED_SECONDS)]
        field.report.say(kills=len(ends), seconds_until_all_calls_ended=[round(took, 1) for took in ends])
        return wrong + slow, field.report


async def one_kill(field: Field, dead_for: float) -> float:
    """Kill a worker at a random instant of twenty calls and restart it after at most `dead_for` seconds. Returns the
    seconds until every call had its final state."""
    dice = field.dice
    desired = [asyncio.create_task(field.order(dice.uniform(0, LONGEST_CALL))) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(dice.uniform(0, LONGEST_CALL))
    node = await field.off_loop(_victim, field)
    await field.off_loop(field.running.kill_worker, node)
    killed = time.monotonic()
    ending = asyncio.create_task(_ended(field, desired, killed))
    await asyncio.wait({ending}, timeout=dice.uniform(0, dead_for) if dead_for < PROMISED_SECONDS else dead_for)
    await field.off_loop(field.running.start_worker, node)
    await field.ready()
    return await ending


async def _ended(field: Field, desired: list["asyncio.Task[None]"], since: float) -> float:
    await asyncio.gather(*desired)
    await field.settled()
    return time.monotonic() - since


def _victim(field: Field) -> str:
    """Usually a worker that owns a session."""
    rows = field.running.do("sessions")
    owners = [row["owner__node"].partition("@")[0] for row in rows if row["owner__node"]]
    return field.dice.choice(owners if owners and field.dice.random() < 0.9 else NODES)


async def without_claims(size: Size) -> list[str]:
    """The control: workers that do not claim what they send. Returns what the checkers report."""
    async with set_up("no claim", size, app="tests.faults.careless_worker") as field:
        await asyncio.gather(*(field.order() for _ in range(IN_FLIGHT)))
        file = field.running.effects_file
        await auntil(lambda: file.exists() and len(file.read_text().splitlines()) > 2 * IN_FLIGHT)
        await field.off_loop(field.running.kill_worker)
        await field.off_loop(field.read)
        return problems(field.told)

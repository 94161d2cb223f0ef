"""A worker is frozen until it counts as dead and then continues, when another worker already owns its sessions."""

import asyncio

from tests.faults.checkers import problems
from tests.faults.field import Field, set_up
from tests.faults.plant import auntil
from tests.faults.size import Report, Size

NODES = ("w1", "w2")
#: More than a session runs at once. The rest stays queued, where a worker that believes it owns them would find them.
WAITING = 90
SECONDS = 1.0


async def freeze_workers(size: Size, rounds: int = 5) -> tuple[list[str], Report]:
    async with set_up("worker frozen and back", size, workers=NODES) as field:
        done = size.count(rounds)
        for _ in range(done):
            await _freeze_and_thaw(field)
        wrong = await field.judged()
        field.summary()
        field.report.say(freezes=done)
        return wrong, field.report


async def without_fence(size: Size) -> list[str]:
    """The control: workers that ignore the epoch. Returns what the checkers report."""
    async with set_up("no fence", size, workers=NODES, app="tests.faults.unfenced_worker") as field:
        await _freeze_and_thaw(field)
        await field.settled()
        await field.off_loop(field.read)
        return problems(field.told) + field.children(0)


async def _freeze_and_thaw(field: Field) -> None:
    """Freeze a worker with calls in flight. When it thaws, it finds calls that wait for the new owner."""
    running = field.running
    await asyncio.gather(*(field.order(field.dice.uniform(0, SECONDS)) for _ in range(20)))
    node = await field.off_loop(_holder, field)
    running.freeze_worker(node)
    try:
        await _taken_over(field, node)
        await field.ready()
        await asyncio.gather(*(field.order(SECONDS) for _ in range(WAITING)))
    finally:
        running.thaw_worker(node)
    await field.settled()


async def _taken_over(field: Field, node: str) -> None:
    try:
        await auntil(lambda: _all_moved_from(field, node), words="nobody took the sessions over")
    except AssertionError as problem:
        told = await field.off_loop(field.running.do, "sessions")
        raise AssertionError(f"{problem}: {told}\n{field.running.log()}") from None


def _holder(field: Field) -> str:
    """The node of the worker that owns the first session, of the stdio server."""
    return str(_owners(field)[0])


def _all_moved_from(field: Field, node: str) -> bool:
    owners = _owners(field)
    return all(owners) and node not in owners


def _owners(field: Field) -> list[str]:
    return [(row["owner__node"] or "").partition("@")[0] for row in field.running.do("sessions")]

"""Redis is killed, wiped and away under load, and the database is locked. Owners do not change, and no call is lost; none is
refused because of Redis."""

import asyncio
from typing import Any

from tests.faults.checkers import not_kept
from tests.faults.field import Field, set_up
from tests.faults.size import Report, Size

NODES = ("w1", "w2")
RATE = 20.0
IN_FLIGHT = 20
REFUSED_SECONDS = 3.0
CALM_SECONDS = 2.0


def owners(field: Field) -> dict[str, Any]:
    return {row["slug"]: (row["owner__node"], row["epoch"]) for row in field.running.do("sessions")}


async def redis_outages(size: Size, rounds: int = 10) -> tuple[list[str], Report]:
    async with set_up("Redis killed, wiped, away", size, workers=NODES) as field:
        return await redis_outages_of(field, size, rounds)


async def redis_outages_of(field: Field, size: Size, rounds: int = 10) -> tuple[list[str], Report]:
    """The scene with an unused field."""
    before = await field.off_loop(owners, field)
    away = size.seconds(20, 3)
    done = size.count(rounds)
    async with field.under_traffic(RATE):
        for _ in range(done):
            await _wipe_kill_and_stay_away(field, away)
    wrong = await field.judged() + not_kept(field.told)
    wrong += [f"calls were refused: {dict(field.rejected)}"] * bool(field.rejected)
    field.summary()
    field.report.say(rounds=done, away_seconds=away, slowest_answer_seconds=max(field.answered))
    return wrong + _moved(before, await field.off_loop(owners, field)), field.report


async def _wipe_kill_and_stay_away(field: Field, seconds: float) -> None:
    running, pause = field.running, field.dice.uniform
    await asyncio.sleep(pause(0.5, CALM_SECONDS))
    await field.off_loop(running.flush_valkey)
    await asyncio.sleep(pause(0.5, CALM_SECONDS))
    await field.off_loop(running.kill_valkey)
    await field.off_loop(running.start_valkey)
    await asyncio.sleep(pause(0.5, CALM_SECONDS))
    await field.off_loop(running.kill_valkey)
    await asyncio.sleep(seconds)
    await field.off_loop(running.start_valkey)
    await asyncio.sleep(CALM_SECONDS)


async def database_locked(size: Size, seconds: float = 60.0) -> tuple[list[str], Report]:
    """Calls in flight keep their results while nothing can be written. New calls are refused in time."""
    async with set_up("database locked", size, workers=NODES) as field:
        before, locked_for = await field.off_loop(owners, field), size.seconds(seconds, 5)
        await asyncio.gather(*(field.order(2 + locked_for * field.dice.uniform(0, 0.5)) for _ in range(IN_FLIGHT)))
        await asyncio.sleep(1)  # let the calls reach their servers
        kept, field.answered = len(field.told.accepted), []
        with field.running.database.locked(20):
            await _order_each_second(field, locked_for)
        refused = sum(field.rejected.values())
        wrong = await field.judged()
        wrong += _moved(before, await field.off_loop(owners, field)) + not_kept(field.told)
        wrong += [f"{len(field.told.accepted) - kept} calls were accepted while nothing could be written"] * (
            len(field.told.accepted) != kept
        )
        slowest = max(field.answered)
        wrong += [f"a call was refused after {slowest:.1f} s"] * (slowest > size.promise(REFUSED_SECONDS))
        field.summary()
        field.report.say(locked_seconds=locked_for, refused=refused, slowest_refusal_seconds=slowest)
        return wrong, field.report


async def _order_each_second(field: Field, seconds: float) -> None:
    desired = []
    for _ in range(round(seconds)):
        desired.append(asyncio.create_task(field.order()))
        await asyncio.sleep(1)
    await asyncio.gather(*desired)


def _moved(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [] if before == after else [f"owners or epochs changed: {before} became {after}"]

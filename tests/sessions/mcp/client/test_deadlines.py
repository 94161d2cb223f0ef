"""Many waits share one timer, and each ends as `asyncio.timeout` would end it."""

import asyncio
import gc
import weakref

import pytest

from sessions.mcp.client.deadlines import Deadlines, Wait


@pytest.fixture
async def deadlines() -> Deadlines:
    return Deadlines(asyncio.get_running_loop())


def now() -> float:
    return asyncio.get_running_loop().time()


async def wait(deadlines: Deadlines, seconds: float, ended: list[str], name: str) -> None:
    await wait_until(deadlines, now() + seconds, ended, name)


async def wait_until(deadlines: Deadlines, deadline: float, ended: list[str], name: str) -> None:
    try:
        with deadlines.at(deadline):
            await asyncio.sleep(30)
    except TimeoutError:
        ended.append(name)


async def test_each_wait_ends_in_the_order_of_its_deadline_whichever_began_first(deadlines: Deadlines) -> None:
    ended: list[str] = []
    began = now()
    seconds = {"third": 0.09, "first": 0.01, "second": 0.05}
    async with asyncio.TaskGroup() as group:
        for name, time in seconds.items():
            group.create_task(wait_until(deadlines, began + time, ended, name))
    assert ended == ["first", "second", "third"]


async def test_waits_whose_deadlines_passed_together_end_in_their_order(deadlines: Deadlines) -> None:
    ended: list[str] = []
    began = now()
    names = [f"{number:02}" for number in range(20)]
    async with asyncio.TaskGroup() as group:
        for name in reversed(names):
            group.create_task(wait_until(deadlines, began + int(name) / 1e6, ended, name))
    assert ended == names


async def test_a_wait_that_is_over_in_time_leaves_its_task_alone(deadlines: Deadlines) -> None:
    with deadlines.at(now() + 0.02) as made:
        pass
    await asyncio.sleep(0.05)
    assert not made.expired()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_deadline_in_the_past_ends_the_wait_at_its_first_pause(deadlines: Deadlines) -> None:
    with pytest.raises(TimeoutError), deadlines.at(now() - 1):
        await asyncio.sleep(30)


async def test_the_cancellation_of_another_stays_a_cancellation(deadlines: Deadlines) -> None:
    ended: list[str] = []
    task = asyncio.create_task(wait(deadlines, 30, ended, "late"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == []


async def test_a_cancellation_at_the_same_moment_as_the_deadline_is_not_swallowed(deadlines: Deadlines) -> None:
    async def waiting() -> None:
        with deadlines.at(None) as made:
            waits.append(made)
            await asyncio.sleep(30)

    waits: list[Wait] = []
    task = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    task.cancel()
    waits[0].expire()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_block_is_not_replaced(deadlines: Deadlines) -> None:
    with pytest.raises(KeyError), deadlines.at(now() + 30):
        raise KeyError


async def test_a_deadline_can_be_put_off_and_brought_forward(deadlines: Deadlines) -> None:
    async def waiting() -> None:
        with deadlines.at(now() + 0.02) as made:
            waits.append(made)
            made.reschedule(now() + 30)
            await asyncio.sleep(0.05)
            assert not made.expired()
            made.reschedule(now() + 0.02)
            await asyncio.sleep(30)

    waits: list[Wait] = []
    with pytest.raises(TimeoutError):
        await waiting()
    assert waits[0].expired()


async def test_a_wait_without_a_deadline_gets_one_later(deadlines: Deadlines) -> None:
    ended: list[str] = []

    async def waiting() -> None:
        try:
            with deadlines.at(None) as made:
                waits.append(made)
                await asyncio.sleep(30)
        except TimeoutError:
            ended.append("late")

    waits: list[Wait] = []
    task = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    assert waits[0].when() is None
    waits[0].reschedule(now() + 0.01)
    await task
    assert ended == ["late"]


async def test_the_timer_does_not_hold_what_no_one_needs_any_more() -> None:
    made = Deadlines(asyncio.get_running_loop())
    with made.at(now() + 600):
        pass
    seen = weakref.ref(made)
    del made
    gc.collect()
    assert seen() is None

"""Tasks end within their time limit, including those that ignore their cancellation."""

import asyncio

from sessions.host.cancelling import cancel_all


async def rest() -> None:
    await asyncio.Event().wait()


async def deaf(over: asyncio.Event) -> None:
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError:
            continue


async def test_tasks_that_go_on_are_cancelled_and_awaited() -> None:
    first, second = asyncio.create_task(rest()), asyncio.create_task(rest())
    assert await cancel_all(first, None, second)
    assert first.cancelled()
    assert second.cancelled()
    assert await cancel_all(first, None)


async def test_a_task_that_misses_its_cancellation_keeps_no_one_waiting() -> None:
    over = asyncio.Event()
    task = asyncio.create_task(deaf(over))
    await asyncio.sleep(0)
    assert not await cancel_all(task, seconds=0.05)
    assert not task.done()
    over.set()
    await task


async def test_what_an_ended_task_raised_is_not_raised_again() -> None:
    async def fail() -> None:
        try:
            await rest()
        finally:
            raise ValueError("while it was ending")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    assert await cancel_all(task)
    assert isinstance(task.exception(), ValueError)

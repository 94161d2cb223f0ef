"""Results of other threads reach a loop: all of them, in order, with one wake-up for what waits together."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from typing import Any

import pytest

from servers.loops import LoopQueue, deliveries, result_of, wait_for_both


def in_a_thread(job: Callable[[], Any]) -> None:
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()


async def test_what_waits_together_wakes_the_loop_once_and_keeps_its_order() -> None:
    loop = asyncio.get_running_loop()
    wakes: list[Any] = []
    woken, seen, done = loop.call_soon_threadsafe, [], asyncio.Event()

    class Counting:
        call_soon = staticmethod(loop.call_soon)

        @staticmethod
        def call_soon_threadsafe(job: Any) -> None:
            wakes.append(job)
            woken(job)

    own = LoopQueue(Counting())  # type: ignore[arg-type]  # the two methods that it uses
    in_a_thread(lambda: [own.put(lambda n=n: seen.append(n)) for n in range(50)])  # type: ignore[misc]  # bound now
    in_a_thread(lambda: own.put(done.set))
    await asyncio.wait_for(done.wait(), 5)
    assert (seen, len(wakes)) == (list(range(50)), 1)
    own.put(done.set)
    assert len(wakes) == 2  # what comes later wakes it again


async def test_what_is_delivered_while_others_are_is_not_forgotten() -> None:
    own, done = deliveries(), asyncio.Event()
    own.put(lambda: own.put(done.set))
    await asyncio.wait_for(done.wait(), 5)


async def test_a_result_and_an_exception_of_a_thread_reach_the_coroutine_that_waits() -> None:
    good: Future[int] = Future()
    bad: Future[int] = Future()
    in_a_thread(lambda: (good.set_result(7), bad.set_exception(KeyError("x"))))
    assert await result_of(good) == 7
    with pytest.raises(KeyError):
        await result_of(bad)


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_wait_that_is_cancelled_cancels_the_work_only_when_asked_to(cancels: bool) -> None:
    future: Future[int] = Future()
    waiting = asyncio.create_task(result_of(future, cancels=cancels))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert future.cancelled() is cancels
    if not cancels:
        future.set_result(1)  # no one waits for it any more
        await asyncio.sleep(0)


async def test_a_future_that_was_cancelled_ends_the_wait() -> None:
    future: Future[int] = Future()
    waiting = asyncio.create_task(result_of(future, cancels=False))
    await asyncio.sleep(0)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(waiting), 5)


async def test_two_steps_in_threads_are_waited_for_together() -> None:
    job: Future[tuple[Future[int]]] = Future()
    step: Future[int] = Future()
    waiting = asyncio.create_task(wait_for_both(job, itemgetter(0), 60.0))
    in_a_thread(lambda: job.set_result((step,)))
    for _ in range(5):  # more turns of the loop than a delivery takes
        await asyncio.sleep(0)
    assert not waiting.done()
    in_a_thread(lambda: step.set_exception(KeyError("x")))
    await asyncio.wait_for(waiting, 5)
    with pytest.raises(KeyError):
        await result_of(step)


async def test_a_first_step_that_fails_or_takes_too_long_ends_the_wait_for_both() -> None:
    failed: Future[tuple[Future[int]]] = Future()
    in_a_thread(lambda: failed.set_exception(KeyError("x")))
    await asyncio.wait_for(wait_for_both(failed, itemgetter(0), 60.0), 5)
    slow: Future[tuple[Future[int]]] = Future()
    await asyncio.wait_for(wait_for_both(slow, itemgetter(0), 0.01), 5)
    assert not slow.done()


async def test_a_job_that_no_one_waits_for_any_more_is_not_begun() -> None:
    gate, begun = threading.Event(), []
    with ThreadPoolExecutor(1) as pool:
        first = asyncio.create_task(result_of(pool.submit(gate.wait)))
        second = asyncio.create_task(result_of(pool.submit(lambda: begun.append(1))))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        await first
        await result_of(pool.submit(lambda: None))  # after the second in the same thread
    assert begun == []


async def test_a_delivery_that_raises_does_not_hold_up_those_after_it() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    own, done = deliveries(), asyncio.Event()
    in_a_thread(lambda: (own.put(lambda: 1 // 0), own.put(done.set)))
    await asyncio.wait_for(done.wait(), 5)
    assert [type(problem) for problem in reported] == [ZeroDivisionError]


def test_a_closed_loop_is_not_an_error_of_the_thread_that_reports() -> None:
    async def own() -> LoopQueue:
        return deliveries()

    found = asyncio.run(own())
    found.put(lambda: None)

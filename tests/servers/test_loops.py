"""What other threads found out reaches a loop: all of it, in order, with one wake-up for what waits together."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from servers.loops import Deliveries, Handed, JobThreads, deliveries, result_of


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

    own = Deliveries(Counting())  # type: ignore[arg-type]  # the two methods that it uses
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


async def test_a_result_and_an_exception_of_a_thread_reach_the_one_who_waits() -> None:
    good: Future[int] = Future()
    bad: Future[int] = Future()
    in_a_thread(lambda: (good.set_result(7), bad.set_exception(KeyError("x"))))
    assert await result_of(good) == 7
    with pytest.raises(KeyError):
        await result_of(bad)


async def test_who_stops_waiting_cancels_the_work() -> None:
    future: Future[int] = Future()
    waiting = asyncio.create_task(result_of(future))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert future.cancelled()


async def test_a_result_that_nobody_waits_for_any_more_is_no_error() -> None:
    future: Future[int] = Future()
    handed = Handed.of(future)
    handed.result.cancel()
    future.set_result(1)
    await asyncio.sleep(0)
    assert handed.result.cancelled()


async def test_a_future_that_was_cancelled_ends_the_wait() -> None:
    future: Future[int] = Future()
    waiting = asyncio.create_task(result_of(future))
    await asyncio.sleep(0)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(waiting), 5)


async def test_jobs_run_in_threads_of_their_own_and_their_failures_are_those_of_the_caller() -> None:
    threads = JobThreads(1, "jobs")
    names = await asyncio.gather(*(threads.run(lambda: threading.current_thread().name) for _ in range(20)))
    assert set(names) == {"jobs_0"}
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await threads.run(lambda: "still there") == "still there"


async def test_a_job_that_nobody_waits_for_any_more_is_not_begun() -> None:
    threads, gate, begun = JobThreads(1, "jobs"), threading.Event(), []
    first = asyncio.create_task(threads.run(gate.wait))
    second = asyncio.create_task(threads.run(lambda: begun.append(1)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    await threads.run(lambda: None)  # after the second in the same thread
    assert begun == []


async def test_work_that_a_job_hands_on_is_one_result_for_the_loop() -> None:
    threads, other = JobThreads(1, "jobs"), Future[int]()
    handed = threads.hand_on(lambda: other)
    await threads.run(lambda: None)  # after the job, in the same thread
    assert (handed.future, handed.result.done()) == (other, False)
    in_a_thread(lambda: other.set_result(7))
    assert await handed.result == 7


async def test_a_job_that_fails_before_it_hands_on_fails_for_the_one_who_waits() -> None:
    handed: Handed[int] = JobThreads(1, "jobs").hand_on(lambda: 1 // 0)  # type: ignore[arg-type,return-value]  # it never returns
    with pytest.raises(ZeroDivisionError):
        await handed.result
    assert handed.future is None


def test_a_closed_loop_is_not_an_error_of_the_thread_that_reports() -> None:
    async def own() -> Deliveries:
        return deliveries()

    found = asyncio.run(own())
    found.put(lambda: None)

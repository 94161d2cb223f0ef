import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Like asyncio.to_thread, but a stop need not wait for it: a migration cut short is rolled back by the database."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def deliver(method: Callable[..., None], value: object) -> None:
        if not result.done():
            method(value)

    def run() -> None:
        try:
            outcome = work()
        except Exception as problem:  # handed to the awaiting side, which knows what to do with it
            loop.call_soon_threadsafe(deliver, result.set_exception, problem)
        else:
            loop.call_soon_threadsafe(deliver, result.set_result, outcome)

    threading.Thread(target=run, daemon=True, name=getattr(work, "__name__", "work")).start()
    return await result

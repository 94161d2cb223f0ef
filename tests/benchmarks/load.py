"""The measured loop, the same for every client: callers that make one call after the other for some seconds.

A driver process reads one JSON object per line (`{"callers": 50, "seconds": 1.0}`) and replies with one line of
results. Standard library only: drive_sdk.py imports it under another interpreter.
"""

import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

TEXT = "hello, world"


def percentile(ordered: list[float], share: float) -> float:
    """By nearest rank: the least value that at least `share` of all do not exceed. Of 20, the 95th percentile is the 19th."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def measured(latencies: list[float], seconds: float, cpu: float) -> dict[str, float]:
    """Latencies in seconds. `cpu` is the seconds of this process alone; the result has milliseconds per call."""
    latencies.sort()
    return {
        "calls": len(latencies),
        "rate": len(latencies) / seconds,
        "p50": percentile(latencies, 0.5) * 1000,
        "p99": percentile(latencies, 0.99) * 1000,
        "cpu": cpu / len(latencies) * 1000,
    }


async def load(call: Callable[[], Awaitable[Any]], callers: int, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    clock, note = time.perf_counter, latencies.append
    cpu, began = time.process_time(), clock()
    ends = began + seconds

    async def caller() -> None:
        now = clock()
        while True:  # at least once, also where the machine was busy until the end
            await call()
            done = clock()
            note(done - now)
            now = done
            if now >= ends:
                break

    await asyncio.gather(*(caller() for _ in range(callers)))
    return measured(latencies, clock() - began, time.process_time() - cpu)


async def obey(call: Callable[[], Awaitable[Any]]) -> None:
    """Run the load that each line of stdin describes, until stdin ends."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        wanted = json.loads(line)
        print(json.dumps(await load(call, wanted["callers"], wanted["seconds"])), flush=True)

"""Twenty minutes of calls with a fault every two: memory and descriptors of the surviving processes stay level, and
every call has its row.

One worker and the web process live for the whole run and are measured. The faults hit the other worker, Redis, the
database, servers and connections.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import cycle

import psutil

from tests.faults import holdings
from tests.faults.field import Field
from tests.faults.servers import behind_proxies
from tests.faults.size import Report, Size
from tests.faults.slopes import Samples
from tests.peers.proxied import Remote

MINUTES = float(os.environ.get("SOAK_MINUTES", "20"))
FAULTS = 10
WARM_UP_SHARE = 0.25
SAMPLE_SECONDS = 5.0
RATE = 5.0
#: 3 MB in ten minutes
MEMORY_SLOPE = 3.0 / 600
MEASURED = ("web", "worker")
NODES = ("w1", "w2")
Fault = Callable[[Field, Remote], Awaitable[None]]


async def soak(size: Size) -> tuple[list[str], Report]:
    seconds = 60 * MINUTES * size.scale
    async with AsyncExitStack() as stack:
        proxies: list[Remote] = []
        field = await stack.enter_async_context(behind_proxies("soak", size, stack, proxies, workers=NODES))
        samples, began = Samples(), time.monotonic()
        sampling = asyncio.create_task(_sample(field, samples, began))
        done = []
        async with field.under_traffic(RATE):
            for number, fault in zip(range(FAULTS), cycle(ALL), strict=False):
                await asyncio.sleep(max(0.0, began + seconds * (number + 0.5) / FAULTS - time.monotonic()))
                await fault(field, proxies[0])
                done.append(fault.__name__)
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        sampling.cancel()
        wrong = await field.judged() + _grown(samples, WARM_UP_SHARE * seconds) + _miscounted(field)
        field.summary()
        field.report.say(minutes=seconds / 60, faults=done, **_slopes(samples, WARM_UP_SHARE * seconds))
        return wrong, field.report


async def _sample(field: Field, samples: Samples, began: float) -> None:
    pids = {"web": field.running.web.pid, "worker": field.running.workers["w1"].pid}
    while True:
        for name, pid in pids.items():
            process = psutil.Process(pid)
            held = {f"{name} MiB": process.memory_info().rss / holdings.MIB, f"{name} fds": process.num_fds()}
            samples.add(time.monotonic() - began, held)
        await asyncio.sleep(SAMPLE_SECONDS)


def _slopes(samples: Samples, after: float) -> dict[str, object]:
    said: dict[str, object] = {}
    for name in MEASURED:
        slope = samples.slope(f"{name} MiB", after) * 600
        said[f"{name}_memory"] = f"{samples.span(f'{name} MiB', after)} MiB, {slope:+.2f} in 10 min"
        said[f"{name}_descriptors"] = samples.span(f"{name} fds", after)
    return said


def _grown(samples: Samples, after: float) -> list[str]:
    wrong = []
    for name in MEASURED:
        memory, descriptors = samples.slope(f"{name} MiB", after), samples.floor_slope(f"{name} fds", after)
        if memory > MEMORY_SLOPE:
            wrong.append(f"memory of {name} grows by {memory * 600:.1f} MiB in 10 min")
        if descriptors > 0:
            wrong.append(f"descriptors of {name} grow by {descriptors * 600:.1f} in 10 min")
    return wrong


def _miscounted(field: Field) -> list[str]:
    """Each accepted call has a row. Each reply lost with its socket may account for one more."""
    rows, accepted = len(field.told.calls), len(field.told.accepted)
    fits = accepted <= rows <= accepted + field.gone
    return [] if fits else [f"{rows} rows for {accepted} accepted calls and {field.gone} lost answers"]


# --- faults ------------------------------------------------------------------------------------------------------------
async def other_worker_killed(field: Field, proxy: Remote) -> None:
    await field.off_loop(field.running.kill_worker, "w2")
    await asyncio.sleep(5)
    await field.off_loop(field.running.start_worker, "w2")


async def redis_wiped(field: Field, proxy: Remote) -> None:
    await field.off_loop(field.running.flush_valkey)


async def redis_away(field: Field, proxy: Remote) -> None:
    await field.off_loop(field.running.kill_valkey)
    await asyncio.sleep(8)
    await field.off_loop(field.running.start_valkey)


async def database_busy(field: Field, proxy: Remote) -> None:
    with field.running.database.locked(20):
        await asyncio.sleep(8)


async def connections_reset(field: Field, proxy: Remote) -> None:
    await field.off_loop(proxy.cut)


async def connections_silent(field: Field, proxy: Remote) -> None:
    await field.off_loop(proxy.black_hole)
    await asyncio.sleep(20)
    await field.off_loop(proxy.clear)


async def server_killed(field: Field, proxy: Remote) -> None:
    for process in field.running.stdio_servers():
        process.kill()


#: Faults that make a process open what it then keeps come first, within the warm-up, and again near the end: what a
#: repetition adds is a leak. A session stays with the worker that took it over. So after the first death of the other
#: worker, the measured one owns all sessions, with a child or sockets for each. A busy database makes every thread open
#: a connection.
ALL: tuple[Fault, ...] = (
    other_worker_killed,
    database_busy,
    redis_away,
    connections_silent,
    redis_wiped,
    connections_reset,
    server_killed,
)

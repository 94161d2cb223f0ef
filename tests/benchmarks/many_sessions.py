"""Measures many idle sessions in one loop: the cost of each, and what is left after closing all.

Prints one JSON object.

python -m tests.benchmarks.many_sessions COUNT URL
"""

import asyncio
import json
import os
import resource
import sys
import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sessions.mcp.client import Client
from sessions.mcp.transports.registry import Spec
from tests.sessions.mcp.transports.making import connected, http

#: number of sessions opened, called or closed at the same time
TOGETHER = 50
FEW = 10
#: the HTTP engine keeps an idle connection for 4 s
IDLE_SECONDS = 5.0


def kib_resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def held() -> dict[str, Any]:
    kinds = Counter(_kind(number) for number in os.listdir("/proc/self/fd"))
    tasks = len(asyncio.all_tasks()) - 1
    return {
        "sockets": kinds["socket"],
        "descriptors": kinds.total(),
        "tasks": tasks,
        "threads": threading.active_count(),
    }


def _kind(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
    except OSError:
        return "listing"  # the descriptor of this listing


async def in_groups(work: list[Any]) -> list[Any]:
    results: list[Any] = []
    for at in range(0, len(work), TOGETHER):
        results += await asyncio.gather(*(one() for one in work[at : at + TOGETHER]))
    return results


async def echo(client: Client) -> None:
    result = await client.call_tool("echo", {"text": "here"})
    assert result.content[0]["text"] == "here"


async def with_sessions(spec: Spec, count: int) -> dict[str, Any]:
    """Open all sessions, leave them idle, call each once more, close them all."""
    async with AsyncExitStack() as stack:
        made = await in_groups([lambda: stack.enter_async_context(connected(spec))] * count)
        await in_groups([lambda one=one: echo(one.client) for one in made])
        await asyncio.sleep(IDLE_SECONDS if count > FEW else 0)
        await _settled()
        idle = {"kib": kib_resident(), **held()}
        await in_groups([lambda one=one: echo(one.client) for one in made])
        closing = stack.pop_all()
        await in_groups([one.client.close for one in made])
        await closing.aclose()
    return idle


async def _settled() -> None:
    """Returns when nothing has ended for a second, which on a busy machine is later than the times above."""
    seen, since = held(), 0
    for _ in range(600):
        if since == 10:
            return
        await asyncio.sleep(0.1)
        now = held()
        seen, since = now, since + 1 if now == seen else 0


async def main(count: int, url: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    spec = http(url)
    await with_sessions(spec, FEW)  # creates what a process creates once
    await asyncio.sleep(0.2)
    before = {"kib": kib_resident(), **held()}
    idle = await with_sessions(spec, count)
    await _settled()
    print(json.dumps({"before": before, "idle": idle, "after": held()}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))

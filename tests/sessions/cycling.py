"""Opens, uses and closes sessions repeatedly, and compares the resources of the process before and after."""

import asyncio
import gc
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from sessions.mcp.transports.registry import HttpSpec, Spec, StdioSpec, WebSocketSpec
from tests.benchmarks.drivers import http_server, stdio_command, websocket_server
from tests.sessions.mcp.transports.making import LOCAL, connected, http
from tests.sessions.mcp.transports.processes import children

KINDS = ("stdio", "streamable_http", "streamable_http-listening", "http_sse", "websocket")
#: sessions open at the same time
TOGETHER = 8
#: Seconds for asynchronous cleanup to finish (a socket's last callback, a killed child). Shorter than the 4 s after
#: which an idle connection that was never closed would time out.
SETTLING = 3.0


@pytest.fixture(scope="module", autouse=True)
def older_objects_stay() -> None:
    """What earlier tests of this process left is not looked at by each collection of garbage. What a session leaves behind
    is made later."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Holdings:
    """The resources of this process, by name, so that a failure shows which of them leaked."""

    descriptors: tuple[str, ...]
    tasks: tuple[str, ...]
    threads: tuple[str, ...]
    children: frozenset[int]


def holdings() -> Holdings:
    gc.collect()
    tasks = sorted(task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task())
    threads = sorted(thread.name for thread in threading.enumerate())
    return Holdings(tuple(sorted(_descriptors())), tuple(tasks), tuple(threads), frozenset(children()))


def _descriptors() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}").partition(":[")[0]
        except OSError:
            continue  # the descriptor of this listing itself


async def left_behind(before: Holdings) -> dict[str, list[str]]:
    """Resources held beyond `before`. Waits up to `SETTLING` seconds for the difference to become empty, which
    usually takes no time. Leftovers of earlier tests may be collected meanwhile."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + SETTLING
    while (more := _beyond(before, holdings())) and loop.time() < ends:  # noqa: ASYNC110 - no event reports a closed descriptor
        await asyncio.sleep(0.05)
    return more


def _beyond(before: Holdings, now: Holdings) -> dict[str, list[str]]:
    differences = {
        name: Counter(map(str, getattr(now, name))) - Counter(map(str, getattr(before, name))) for name in vars(before)
    }
    return {name: sorted(counted.elements()) for name, counted in differences.items() if counted}


@contextmanager
def spec_of(kind: str) -> Iterator[Spec]:
    """The spec of the smallest server of a transport. The server runs while the block is open."""
    if kind == "stdio":
        command, *args = stdio_command("legacy")
        yield StdioSpec(command, tuple(args))
    elif kind == "websocket":
        with websocket_server() as url:
            yield WebSocketSpec(url, policy=LOCAL)
    else:
        with http_server("legacy", *(["--listen"] if kind.endswith("listening") else [])) as base:
            yield HttpSpec(f"{base}/sse", policy=LOCAL, kind="http_sse") if kind == "http_sse" else http(f"{base}/mcp")


async def cycle(spec: Spec, times: int) -> None:
    """Open, use and close `times` sessions, at most `TOGETHER` at a time."""
    left = iter(range(times))

    async def one_after_another() -> None:
        for number in left:
            async with connected(spec, era="legacy") as made:
                result = await made.client.call_tool("echo", {"text": str(number)})
                assert result.content[0]["text"] == str(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(TOGETHER):
            group.create_task(one_after_another())

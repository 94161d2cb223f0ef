"""Measures what a hostile server costs others: the latency of a healthy session alone, and next to one over a limit.

python -m tests.benchmarks.bench_neighbours [--seconds S] [transport:scenario...]

Both sessions share one loop. The hostile scenario (tests/peers/hostile) repeats, in a new session whenever the client
gave up the last one. The healthy session makes a call every 2 ms. No timing makes the run fail.
tests/sessions/mcp/hostile asserts that its responses are right and that memory stays bounded.
"""

import argparse
import asyncio
import time
from collections import Counter
from contextlib import suppress

from sessions.mcp.client import Client
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.results import Timeouts
from sessions.mcp.transports.registry import Spec, StdioSpec
from sessions.mcp.transports.stdio import prepare_loop
from tests.benchmarks.drivers import stdio_command
from tests.benchmarks.load import percentile
from tests.peers.hostile.scenarios import HTTP_SSE, JSON, LISTS, STDIO, STREAM, WEBSOCKET
from tests.sessions.mcp.hostile.playing import hostile_http, spec_of
from tests.sessions.mcp.transports.making import connected

PAUSE = 0.002
FIRST_END_SECONDS = 60.0
#: short enough that a scenario which waits for a deadline reaches it
TIMEOUTS = Timeouts(probe=20, initialize=20, request=5, tool=1, total=5)
#: at least one scenario for each limit of sessions/mcp/core/limits.py
SCENES = [
    *((STDIO, name) for name in ("giant-message", "giant-anonymous", "many-values", "giant-batch", "deep")),
    *((STDIO, name) for name in ("endless-line", "endless-message", "giant-print", "stderr-flood")),
    *((STDIO, name) for name in ("log-flood", "progress-flood", "sampling-flood", "ping-flood", "foreign-ids")),
    *((STDIO, name) for name in ("endless-pages", "circling-cursor", "many-tools", "fat-tools")),
    *((STDIO, name) for name in ("endless-rounds", "fat-state")),
    *((JSON, name) for name in ("giant-message", "endless-body", "bomb", "small-bomb", "many-headers", "wide-header")),
    *((STREAM, name) for name in ("comments", "empty-events", "giant-event", "stream-bomb", "log-flood")),
    *((HTTP_SSE, name) for name in ("log-flood", "giant-message")),
    *((WEBSOCKET, name) for name in ("endless-fragments", "giant-frame-head", "log-flood", "ws-pings")),
]


async def ask(client: Client, seconds: float) -> list[float]:
    """The sorted latencies of a healthy session, in milliseconds."""
    latencies, ends = [], time.perf_counter() + seconds
    while (now := time.perf_counter()) < ends:
        await client.call_tool("echo", {"text": "healthy"})
        latencies.append((time.perf_counter() - now) * 1000)
        await asyncio.sleep(PAUSE)
    return sorted(latencies)


async def play(spec: Spec, scenario: str, ends_as: Counter[str], ended: asyncio.Event) -> None:
    """Repeat the scenario until cancelled. `ended` is set when it ended for the first time."""
    while True:
        with suppress(McpError):
            async with connected(spec, timeouts=TIMEOUTS) as made:
                while not made.client.closed.done():
                    try:
                        await once(made.client, scenario, ends_as)
                    finally:
                        ended.set()
                    made.events.clear()


async def once(client: Client, scenario: str, ends_as: Counter[str]) -> None:
    try:
        if scenario in LISTS:
            listing = await client.list_tools()
            ends_as[listing.limited_by or "answered"] += 1
        else:
            await client.call_tool("evil", {})
            ends_as["answered"] += 1
    except McpError as error:
        ends_as[error.fault] += 1
        if not error.may_have_run:
            raise  # the session is closed


async def measure(transport: str, scenario: str, base: str, seconds: float) -> None:
    command, *args = stdio_command("legacy")
    async with connected(StdioSpec(command, tuple(args)), era="legacy") as healthy:
        await ask(healthy.client, 0.2)
        alone = await ask(healthy.client, seconds / 2)
        ends_as: Counter[str] = Counter()
        ended = asyncio.Event()
        hostile = asyncio.create_task(play(spec_of(transport, scenario, base, Limits()), scenario, ends_as, ended))
        beside = await ask(healthy.client, seconds)
        with suppress(TimeoutError):  # on a busy machine it may not have finished yet
            await asyncio.wait_for(ended.wait(), FIRST_END_SECONDS)
        hostile.cancel()
        await asyncio.wait((hostile,))
    row(f"{transport}:{scenario}", alone, beside, ends_as)


def row(name: str, alone: list[float], beside: list[float], ends_as: Counter[str]) -> None:
    told = ", ".join(f"{count} {fault}" for fault, count in ends_as.most_common(2)) or "still under way"
    p50, p99 = percentile(beside, 0.5), percentile(beside, 0.99)
    print(
        f"{name:<28}{percentile(alone, 0.5):>8.2f}{p50:>8.2f}{p50 / percentile(alone, 0.5):>7.1f}"
        f"{percentile(alone, 0.99):>9.2f}{p99:>9.2f}{p99 / percentile(alone, 0.99):>7.1f}{beside[-1]:>9.1f}  {told}",
        flush=True,
    )


async def run(scenes: list[tuple[str, str]], seconds: float) -> None:
    prepare_loop(asyncio.get_running_loop())
    print("milliseconds of a healthy session, alone and beside a hostile one in the same loop")
    print(
        f"{'hostile scene':<28}{'p50':>8}{'beside':>8}{'ratio':>7}{'p99':>9}{'beside':>9}{'ratio':>7}{'longest':>9}  ended as"
    )
    with hostile_http() as base:
        for transport, scenario in scenes:
            await measure(transport, scenario, base, seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenes", nargs="*", help="transport:scenario")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    chosen = [scene for scene in SCENES if not options.scenes or ":".join(scene) in options.scenes]
    asyncio.run(run(chosen, options.seconds))


if __name__ == "__main__":
    main()

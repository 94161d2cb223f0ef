"""Servers that misbehave: one that dies a thousand times, and some that go silent without closing anything."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any

import psutil

from tests.faults import holdings
from tests.faults.checkers import left_behind
from tests.faults.field import Field, set_up
from tests.faults.plant import FAST, auntil
from tests.faults.size import Report, Size
from tests.peers.proxied import Remote, proxied

#: SQLite returns descriptors to connections at its own pace, and a reader thread may have opened its first one. The
#: flapping server is open at the end, with three pipes and a pidfd.
ROOM = {"mib": 20, "descriptors": 10, "threads": 3}
FOUND_SECONDS = 45.0


# --- flapping ----------------------------------------------------------------------------------------------------------
async def flap(size: Size, flaps: int = 1_000) -> tuple[list[str], Report]:
    """A stdio server that dies at once or after the handshake, and HTTP servers whose connections are reset."""
    flaps, quick = size.count(flaps, 10), FAST | {"MCPADMIN_RECONNECT_CEILING_SECONDS": "0.05"}
    async with AsyncExitStack() as stack:
        proxies: list[Remote] = []
        field = await stack.enter_async_context(behind_proxies("flapping", size, stack, proxies, times=quick))
        worker = field.running.workers["w1"].pid
        file = field.running.effects_file
        before = await _measured(field, worker)
        for proxy in proxies:
            proxy.add("reset_peer")
            proxy.cut()
        options = ("--flaps", str(flaps))
        began = time.monotonic()
        flapping = await field.off_loop(field.running.register_effects, "stdio-flapping", *options)
        await auntil(lambda: file.read_text().count("life\n") > flaps, 120 + 2 * flaps, "it stopped trying")
        took, tried = time.monotonic() - began, [proxy.state()["accepted"] for proxy in proxies]
        for proxy in proxies:
            proxy.clear()
        field.servers.append(flapping)
        await field.ready()
        after = await _measured(field, worker)
        after["children"] -= (
            after["children"] - before["children"] if after["children"] <= 2 * before["children"] else 0
        )
        wrong = left_behind(before, after, ROOM) + await field.judged()
        log = await field.off_loop(field.running.do, "log_state", flapping)
        field.summary()
        field.report.say(flaps=flaps, seconds=took, resets=tried, before=before, after=after, log_lines=log["newest"])
        return wrong, field.report


def behind_proxies(scene: str, size: Size, stack: AsyncExitStack, proxies: list[Remote], **options: Any) -> Any:
    def through(url: str) -> str:
        port, path = url.removeprefix("http://127.0.0.1:").split("/", 1)
        proxies.append(stack.enter_context(proxied("127.0.0.1", int(port))))
        return f"{proxies[-1].url}/{path}"

    return set_up(scene, size, through=through, **options)


async def _measured(field: Field, worker: int) -> dict[str, int]:
    """Measure after calls that create what a worker creates once."""
    await asyncio.gather(*(field.order(server=server) for server in field.servers for _ in range(5)))
    await field.settled()
    await asyncio.sleep(1)
    return await field.off_loop(holdings.of, worker)


# --- half-open ---------------------------------------------------------------------------------------------------------
async def half_open(size: Size, rounds: int = 2) -> tuple[list[str], Report]:
    """The worker detects and reports servers that stop responding, and reconnects once they respond again.

    A legacy HTTP server behind a black hole and a frozen stdio server each have a call in flight. A modern server
    behind a black hole is idle. The full run uses the product's real time-outs."""
    options: dict[str, Any] = {"times": {}} if size.scale >= 1 else {}
    async with AsyncExitStack() as stack:
        proxies: list[Remote] = []
        field = await stack.enter_async_context(behind_proxies("half-open", size, stack, proxies, **options))
        found: list[float] = []
        calling = field.servers[:2]
        for _ in range(size.count(rounds)):
            await asyncio.gather(*(field.order(60, server) for server in calling))
            await asyncio.sleep(1)  # let the calls reach their servers
            before = await field.off_loop(_connections, field)
            with _silent(field, proxies):
                began, left = time.monotonic(), set(field.servers)
                await auntil(lambda: not _still_unnoticed(field, before, left), 3 * FOUND_SECONDS, "nobody noticed")  # noqa: B023  # awaited within the round
                found.append(time.monotonic() - began)
            await field.ready()
        wrong = await field.judged()
        field.summary()
        field.report.say(rounds=len(found), found_after_seconds=[round(took, 1) for took in found])
        return wrong + [
            f"found after {took:.1f} s" for took in found if took > size.promise(FOUND_SECONDS)
        ], field.report


def _connections(field: Field) -> dict[str, str]:
    """When each ready connection was made."""
    return {row["uid"]: row["connected_at"] for row in field.running.do("sessions") if row["state"] == "ready"}


def _still_unnoticed(field: Field, before: dict[str, str], left: set[str]) -> set[str]:
    """Removes every server whose connection changed from `left` and returns the rest.

    A stdio server reconnects through a new, responsive process long before the others are noticed, so each counts once.
    """
    now = _connections(field)
    left -= {server for server in left if now.get(server) != before[server]}
    return left


@contextmanager
def _silent(field: Field, proxies: list[Remote]) -> Iterator[None]:
    """Make all servers silent: no connection closes and nothing responds."""
    stopped = field.running.stdio_servers()
    for proxy in proxies:
        proxy.black_hole()
    for process in stopped:
        process.suspend()
    try:
        yield
    finally:
        for proxy in proxies:
            proxy.clear()
        for process in stopped:
            with suppress(psutil.NoSuchProcess):  # the worker that noticed has killed it
                process.resume()

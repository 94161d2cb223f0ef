"""Plays one hostile scene against a client while a healthy session keeps running in the same loop."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessions.mcp.client import Client
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.events import Event, EventsDropped, Progress
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.results import Timeouts
from sessions.mcp.core.state import State
from sessions.mcp.transports.registry import HttpSpec, Spec, StdioSpec, WebSocketSpec
from tests.peers.hostile import scenarios
from tests.peers.hostile.scenarios import HTTP_SSE, STDIO, STREAM, WEBSOCKET
from tests.sessions.mcp.transports.making import LOCAL, connected, script

ROOT = Path(__file__).parents[4]
PEERS = "tests.peers.hostile"
#: scenes that end by the deadline should end soon; all others finish long before it
SHORT = Timeouts(probe=20, initialize=20, request=20, tool=1.0, total=10.0)
#: a server that always continues must miss one deadline to count as silent
LASTING = Timeouts(probe=20, initialize=20, request=20, tool=2.0, total=2.6)
PATIENT = Timeouts(probe=20, initialize=20, request=60, tool=60, total=90)


@dataclass
class Outcome:
    """The outcome of a scene. `fault` is empty if the call was answered; `growth` is the rise of the process's peak
    memory in MiB."""

    fault: str = ""
    detail: str = ""
    text: str = ""
    limited_by: str = ""
    items: int = 0
    usable: bool = False
    healthy: int = 0
    growth: float = 0.0
    events: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    progress: int = 0


@contextmanager
def hostile_http() -> Iterator[str]:
    """The base URL of the HTTP peer."""
    argv = [sys.executable, "-m", f"{PEERS}.hostile_http"]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().strip()
        finally:
            process.kill()


def baits_taken(base: str) -> int:
    with urllib.request.urlopen(f"{base}/seen", timeout=10) as answer:
        return int(json.load(answer)["bait"])


def spec_of(transport: str, scenario: str, base: str, limits: Limits) -> Spec:
    if transport == STDIO:
        return StdioSpec(
            sys.executable, ("-m", f"{PEERS}.hostile_stdio", scenario, f"{base}/bait"), str(ROOT), limits=limits
        )
    if transport == WEBSOCKET:
        return WebSocketSpec(f"{base.replace('http', 'ws')}/ws/{scenario}", policy=LOCAL, limits=limits)
    if transport == HTTP_SSE:
        return HttpSpec(f"{base}/sse/{scenario}", policy=LOCAL, limits=limits, kind="http_sse")
    kind = "stream" if transport == STREAM else "json"
    return HttpSpec(f"{base}/{kind}/{scenario}", policy=LOCAL, limits=limits, kind="streamable_http")


class Neighbour:
    """A healthy session that is called continuously and must always answer correctly."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answers = 0

    async def ask(self) -> None:
        text = f"healthy {self.answers}"
        result = await self._client.call_tool("echo", {"text": text})
        assert result.content == [{"type": "text", "text": text}]
        self.answers += 1

    async def run(self) -> None:
        while True:
            await self.ask()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def neighbour() -> AsyncIterator[Neighbour]:
    """A neighbour that is called while the block runs."""
    async with connected(script("server")) as made:
        beside = Neighbour(made.client)
        await beside.ask()
        task = asyncio.create_task(beside.run())
        try:
            yield beside
        finally:
            assert not task.done(), "the healthy session failed"
            task.cancel()
            await asyncio.wait((task,))
        await beside.ask()


async def play(
    transport: str,
    scenario: str,
    base: str,
    beside: Neighbour,
    *,
    limits: Limits | None = None,
    timeouts: Timeouts = PATIENT,
    usable: bool = True,
) -> Outcome:
    """`base` is the URL of the HTTP peer; a child process only advertises it as bait. `usable` is the state expected
    afterwards."""
    outcome, before, asked_before = Outcome(), _forget_peak(), beside.answers
    async with connected(spec_of(transport, scenario, base, limits or Limits()), timeouts=timeouts) as made:
        try:
            await _evil(made.client, scenario, outcome)
        except McpError as error:
            outcome.fault, outcome.detail = error.fault, error.detail
        await beside.ask()
        outcome.growth = _peak() - before
        outcome.usable = await _usable(made.client, 30.0 if usable else 0.5)
    outcome.healthy = beside.answers - asked_before
    _count(made.events, outcome)
    return outcome


async def _evil(client: Client, scenario: str, outcome: Outcome) -> None:
    if scenario in scenarios.LISTS:
        listing = await client.list_tools()
        outcome.items, outcome.limited_by = len(listing.items), listing.limited_by or ""
        return

    def progressed(*_: Any) -> None:
        outcome.progress += 1

    result = await client.call_tool("evil", {}, on_progress=progressed)
    outcome.text = str(result.content[0]["text"]) if result.content else json.dumps(result.raw)


async def _usable(client: Client, patience: float) -> bool:
    """Whether the same session still answers correctly."""
    if client.state is not State.READY:
        return False
    try:
        result = await client.call_tool("echo", {"text": "still here"}, timeout=patience, total_timeout=patience)
    except McpError:
        return False
    return result.content == [{"type": "text", "text": "still here"}]


def _count(events: list[Event], outcome: Outcome) -> None:
    outcome.events = dict(Counter(type(event).__name__ for event in events))
    outcome.dropped = sum(event.count for event in events if isinstance(event, EventsDropped))
    outcome.progress = max(outcome.progress, sum(isinstance(event, Progress) for event in events))


def _status(name: str) -> float:
    """The value of a line of /proc/self/status in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no {name} on this system")


def _forget_peak() -> float:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def _peak() -> float:
    return _status("VmHWM")

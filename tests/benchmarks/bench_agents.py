"""Measures what agents pay for the audited endpoint: calls and lists of the same echo server, directly, through mcpadmin
and through FastMCP's proxy; the memory and idle CPU of open streams; how soon an update of a resource reaches many agents.

python -m tests.benchmarks.bench_agents [--rounds N] [--seconds S] [--streams N] [--listeners N] [--updates N]

The product runs as shipped, with its limits: agents take turns with the tokens of fifty people, because a token may make
ten requests a second. Clients, web, worker, broker and server share the machine.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_path import Row, judge, running, spread
from tests.benchmarks.drive_agents import Connection, Identity
from tests.benchmarks.drivers import HERE, Driver, http_server, line_of, server, stop
from tests.benchmarks.load import percentile
from tests.benchmarks.product import Cpu
from tests.peers.peers import HERE as PEERS
from tests.tools.stack import ADMIN, Stack, proportional_mib

PEOPLE, TOKENS_EACH = 50, 3
WARM_UP_SECONDS = 2.0
UPDATE_SECONDS = 1.3
ARRIVAL_SECONDS = 10.0
IDLE_SECONDS = 10.0
DIRECT, LEGACY, MODERN, PROXY = "direct", "mcpadmin, 2025-11-25", "mcpadmin, 2026-07-28", "FastMCP's proxy"
#: (what agents do, how many of them): with how many tokens. As few as the goal needs: what is known of a token is kept
#: for some seconds, so one that is seldom used costs more
LOADS = {("call", 1): 20, ("call", 50): 50, ("list", 50): PEOPLE * TOKENS_EACH}
Rows = dict[tuple[str, str, int], list[Row]]
ISSUE = """
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from servers.agents import tokens
from servers.audit.record import Actor
permissions = Permission.objects.filter(codename__in=["view_server", "call_tool", "manage_subscription"])
for number in range({people}):
    user = get_user_model().objects.create_user(f"person{{number}}")
    user.user_permissions.set(permissions)
    for _ in range({each}):
        wanted = tokens.NewToken("benchmark", 7, ["mcp:list", "mcp:read", "mcp:call"])
        print("TOKEN", tokens.issue(Actor.of_user(user), user, wanted).text)
"""


def tokens(product: Stack) -> list[str]:
    told = product.shell(ISSUE.format(people=PEOPLE, each=TOKENS_EACH))
    made = [line.split()[1] for line in told.splitlines() if line.startswith("TOKEN ")]
    return made[::TOKENS_EACH] + [token for number, token in enumerate(made) if number % TOKENS_EACH]


def register(product: Stack, name: str, url: str, kind: str, key: str) -> str:
    """The address of its endpoint, once its list is read."""
    words = ("register_server", "--user", ADMIN[0], "--era", "legacy", "--name", name, "--url", url)
    product.manage(*words, "--transport", "streamable_http")
    deadline = time.monotonic() + 60
    while not product.rows("SELECT 1 FROM servers_definition WHERE kind = ? AND key = ?", kind, key):
        assert time.monotonic() < deadline, product.output[-3000:]
        time.sleep(0.2)  # no event reports rows of another process
    return f"{product.base_url}/mcp/{name.lower()}"


# --- calls and lists -----------------------------------------------------------------------------------------------------
@contextmanager
def drivers(product: Stack, known: list[str]) -> Iterator[dict[str, Driver]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = f"{stack.enter_context(http_server('legacy'))}/mcp"
        ours = register(product, "Echo", upstream, "tool", "echo")
        cases = {DIRECT: (upstream, "legacy", [""]), LEGACY: (ours, "legacy", known), MODERN: (ours, "modern", known)}
        if (python := PEERS / ".venv-fastmcp" / "bin" / "python").exists():
            proxy = stack.enter_context(server([str(python), str(HERE / "fastmcp_proxy.py"), upstream]))
            cases[PROXY] = (proxy, "legacy", [""] * 50)
        made = {}
        for number, (name, (url, era, used)) in enumerate(cases.items()):
            file = folder / f"{number}.json"
            file.write_text(json.dumps({"url": url, "era": era, "tool": "echo", "tokens": used}))
            made[name] = Driver([sys.executable, "-m", "tests.benchmarks.drive_agents"], [str(file)])
            stack.callback(made[name].close)
        yield made


def loads(product: Stack, known: list[str], rounds: int, seconds: float) -> Rows:
    found: Rows = {}
    with drivers(product, known) as made:
        cpu = Cpu(product)
        for number in range(rounds + 1):  # the first round warms up
            lasting = seconds if number else min(seconds, WARM_UP_SECONDS)
            for (doing, callers), used in LOADS.items():
                for name, driver in made.items():
                    cpu.since()
                    turn = lasting if name in (LEGACY, MODERN) else min(1.0, lasting)
                    row = driver.run(callers, turn, doing=doing, tokens=used)
                    row |= {f"cpu {part}": 1000 * spent / row["calls"] for part, spent in cpu.since().items()}
                    if number:
                        found.setdefault((name, doing, callers), []).append(row)
    return found


def show(found: Rows) -> None:
    print(f"{'':<24}{'doing':<6}{'agents':>7}{'/s':>8}{'(rounds)':>14}{'p50 ms':>9}{'p99 ms':>9}{'refused':>9}")
    for (name, doing, callers), rows in found.items():
        rate, low, high = spread(rows, "rate")
        p50, p99, refused = (spread(rows, column)[0] for column in ("p50", "p99", "refused"))
        print(
            f"{name:<24}{doing:<6}{callers:>7}{rate:>8.0f}{f'{low:.0f}-{high:.0f}':>14}{p50:>9.2f}{p99:>9.1f}{refused:>9.0f}"
        )
    print("\nCPU of each process, milliseconds a request (median)")
    for (name, doing, callers), rows in found.items():
        if name in (LEGACY, MODERN):
            parts = {part: spread(rows, f"cpu {part}")[0] for part in ("web", "worker", "valkey", "echo server")}
            told = ", ".join(f"{part} {used:.2f}" for part, used in parts.items())
            print(f"  {name}, {doing}, {callers}: {told}; client {spread(rows, 'cpu')[0]:.2f}")
    print()
    for name in (LEGACY, MODERN):
        direct = spread(found[DIRECT, "call", 1], "p50")[0]
        added = [{"added": row["p50"] - direct} for row in found[name, "call", 1]]
        judge(f"{name}: added p50 of a call, 1 agent: {{:.2f}} ms, best round {{:.2f}}", added, "added", 5.0, most=True)
        for doing, goal in (("call", 300.0), ("list", 800.0)):
            words = f"{name}: {doing}s/s, 50 agents: {{:.0f}}, best round {{:.0f}}"
            judge(words, found[name, doing, 50], "rate", goal, most=False)


# --- streams ---------------------------------------------------------------------------------------------------------------
class Listening:
    """One `subscriptions/listen`."""

    def __init__(self, url: str, token: str, wanted: dict[str, Any]) -> None:
        self._connection, self._identity = Connection(url), Identity(url, "modern", "", token)
        self._wanted = wanted

    async def open(self, stack: AsyncExitStack) -> None:
        """Until the acknowledgement."""
        self._reader = (await stack.enter_async_context(self._connection)).reader
        request = self._identity.request("subscriptions/listen", {"notifications": self._wanted})
        self._connection.writer.write(request)
        await self._reader.readuntil(b"acknowledged")

    async def read(self, arrivals: "asyncio.Queue[int]") -> None:
        """The time of each update (time.time_ns), as it comes."""
        with suppress(asyncio.IncompleteReadError):
            while True:
                await self._reader.readuntil(b"resources/updated")
                arrivals.put_nowait(time.time_ns())


async def standing(product: Stack, url: str, known: list[str], count: int) -> None:
    """Memory and idle CPU of streams at the web process."""
    web, cpu = product.part("daphne")[0].pid, Cpu(product)
    async with AsyncExitStack() as stack:
        before = proportional_mib(web)
        turns = [Listening(url, known[number % len(known)], {"toolsListChanged": True}) for number in range(count)]
        for one in turns:
            await one.open(stack)
        await asyncio.sleep(1)
        added = proportional_mib(web) - before
        cpu.since()
        await asyncio.sleep(IDLE_SECONDS)
        used = {part: 100 * seconds / IDLE_SECONDS for part, seconds in cpu.since().items()}
        print(
            f"\n{count} open streams: {1024 * added / count:.1f} KiB each; idle CPU web {used['web']:.1f} %, ", end=""
        )
        print(f"worker {used['worker']:.1f} %, valkey {used['valkey']:.1f} % of a core")
        words = f"memory added by {count} streams: {{:.1f}} MiB"
        judge(words, [{"added": added}], "added", 30.0 * max(1.0, count / 500), most=True)


async def updates(url: str, upstream: "subprocess.Popen[str]", known: list[str], count: int, changes: int) -> None:
    """From the server's notification to each agent."""
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        wanted = {"resourceSubscriptions": ["bench://clock"]}
        programs = [Listening(url, known[number % len(known)], wanted) for number in range(count)]
        for one in programs:
            await one.open(stack)
        arrivals: asyncio.Queue[int] = asyncio.Queue()
        reading = [asyncio.create_task(one.read(arrivals)) for one in programs]
        for _ in range(changes):
            told = await asyncio.to_thread(_change, upstream)
            async with asyncio.timeout(ARRIVAL_SECONDS):
                latencies += [(await arrivals.get() - told) / 1e6 for _ in programs]
            await asyncio.sleep(UPDATE_SECONDS)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    latencies.sort()
    p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
    print(f"\nan update of a resource to {count} agents: p50 {p50:.0f} ms, p99 {p99:.0f} ms ({changes} updates)")
    judge(f"p99 of an update, {count} agents: {{:.0f}} ms", [{"p99": p99}], "p99", 300.0, most=True)


def _change(upstream: "subprocess.Popen[str]") -> int:
    assert upstream.stdin is not None
    upstream.stdin.write("\n")
    upstream.stdin.flush()
    return int(line_of(upstream.stdout, ARRIVAL_SECONDS))


@contextmanager
def updating() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-S", "-E", str(HERE / "updating_http.py"), "--listen"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]  # pipes are of one kind
    try:
        yield process, line_of(process.stderr, ARRIVAL_SECONDS)
    finally:
        stop(process)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--listeners", type=int, default=100)
    parser.add_argument("--updates", type=int, default=10)
    options = parser.parse_args()
    with running() as product, updating() as (upstream, base):
        known = tokens(product)
        found = loads(product, known, options.rounds, options.seconds)
        clock = register(product, "Clock", f"{base}/mcp", "resource", "bench://clock")
        print(
            f"{PEOPLE} people with {TOKENS_EACH} tokens each; {options.rounds} rounds of {options.seconds:g} s, medians"
        )
        show(found)
        asyncio.run(standing(product, clock, known, options.streams))
        asyncio.run(updates(clock, upstream, known, options.listeners, options.updates))


if __name__ == "__main__":
    main()

"""What one `tools/call` executes on its way from a page's socket to the server and back.

python -m tests.tools.trace_call [--calls N] [--transport stdio|http] [--functions]

Starts the product, makes N calls one after the other, and keeps what all of them have in common: functions and modules
of the project, threads, SQL statements and commits, for the web process and the worker. Periodic work (heartbeats,
ticks) drops out, because not every call triggers it.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.product import accounts, callers, echo_servers
from tests.tools.prepared import prepare
from tests.tools.stack import Stack
from tests.tools.tracing.sitecustomize import SIGNAL

TRACING = Path(__file__).with_name("tracing")
#: wait after the last frame: rows and messages written after the response belong to the call
SETTLING_SECONDS = 0.4
SECONDS = 60.0
#: copies SQLite's log two seconds after a commit, which on a slow machine is within every window
PERIODIC = frozenset({"log-copier"})
_TRANSACTION = re.compile(r"(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|PRAGMA)\b", re.IGNORECASE)
_VALUE = re.compile(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b")


@dataclass(frozen=True)
class Part:
    """What one process does in every call. `threads` maps a thread to the functions that it enters."""

    threads: dict[str, frozenset[tuple[str, str]]]
    statements: int
    commits: int

    @property
    def functions(self) -> frozenset[tuple[str, str]]:
        return frozenset().union(*self.threads.values())


def of_every_call(windows: list[dict[str, Any]], idle: dict[str, Any] | None = None) -> Part:
    """What all windows have in common, without what is done without a call, in the window `idle`, too."""
    periodic = {(thread, file, function) for thread, file, function in idle["entered"]} if idle else set()
    threads: dict[str, frozenset[tuple[str, str]]] = {}
    for number, window in enumerate(windows):
        seen: dict[str, set[tuple[str, str]]] = {}
        for thread, file, function in window["entered"]:
            if thread in PERIODIC or (thread, file, function) in periodic:
                continue
            seen.setdefault(thread, set()).add((file, function))
        if number == 0:
            threads = {name: frozenset(functions) for name, functions in seen.items()}
        threads = {name: functions & seen.get(name, set()) for name, functions in threads.items()}
    common = [Counter(steps(window["statements"])) for window in windows]
    for other in common[1:]:
        common[0] &= other
    for step in steps(idle["statements"]) if idle else ():
        common[0].pop(step, None)
    texts = [text for step in common[0].elements() for text in step]
    return Part(
        {name: functions for name, functions in threads.items() if functions},
        sum(not _TRANSACTION.match(text) for text in texts),
        sum(text.upper().startswith("COMMIT") for text in texts),
    )


def steps(statements: list[list[str]]) -> Iterator[tuple[str, ...]]:
    """Each transaction, and each statement outside of one, with its values left out: a periodic one that falls into a
    window differs from the ones of a call."""
    open_ones: dict[str, list[str]] = {}
    for thread, statement in statements:
        text = _VALUE.sub("?", statement.strip())
        word = text.upper()
        if word.startswith("BEGIN"):
            open_ones[thread] = []
        if thread in open_ones:
            open_ones[thread].append(text)
            if word.startswith(("COMMIT", "ROLLBACK")):
                yield tuple(open_ones.pop(thread))
        else:
            yield (text,)


class Trace:
    """A product whose web process and worker record on demand."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="mcpadmin-trace-"))
        (self._folder / "records").mkdir()
        path = os.pathsep.join(filter(None, (str(TRACING), os.environ.get("PYTHONPATH"))))
        env = {"MCPADMIN_TRACE_DIR": str(self._folder / "records"), "PYTHONPATH": path}
        self.product = Stack(prepare(self._folder / "data", administrator=True), env=env)

    def __enter__(self) -> "Trace":
        self.product.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.product.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _processes(self) -> dict[str, int]:
        """Role and pid of each recording process."""
        found = (path.stem.split("-") for path in (self._folder / "records").glob("*-ready.json"))
        return {role: int(pid) for role, pid, _ in found}

    async def _signal(self, word: str) -> dict[str, dict[str, Any]]:
        """Make every process begin or end a recording, and return what each wrote."""
        processes = self._processes()
        for pid in processes.values():
            os.kill(pid, SIGNAL)
        paths = {role: self._folder / "records" / f"{role}-{pid}-{word}.json" for role, pid in processes.items()}
        deadline = time.monotonic() + SECONDS
        while not all(path.exists() for path in paths.values()):
            assert time.monotonic() < deadline, self.product.output[-3000:]
            await asyncio.sleep(0.02)  # no event reports files of other processes
        return {role: json.loads(path.read_text()) for role, path in paths.items()}

    async def _record(self, transport: str, calls: int) -> list[dict[str, dict[str, Any]]]:
        """One window for each call, and one as long as the longest of them without a call."""
        windows = []
        with echo_servers(self.product) as servers:
            async with callers(self.product, accounts(self.product, 1)) as sockets:
                for _ in range(10):  # fill caches and pools
                    assert await sockets[0].call(servers[transport]), sockets[0].refused
                longest = 0.0
                for number in range(calls):
                    began = time.monotonic()
                    await self._signal(f"begun-{number}")
                    assert await sockets[0].call(servers[transport]), sockets[0].refused
                    await asyncio.sleep(SETTLING_SECONDS)
                    windows.append(await self._signal(str(number)))
                    longest = max(longest, time.monotonic() - began)
                await self._signal(f"begun-{calls}")
                await asyncio.sleep(longest)
                windows.append(await self._signal(str(calls)))
        return windows

    def parts(self, transport: str = "stdio", calls: int = 8) -> dict[str, Part]:
        """What every call did, by role."""
        *windows, idle = asyncio.run(self._record(transport, calls))
        return {role: of_every_call([window[role] for window in windows], idle[role]) for role in windows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=8)
    parser.add_argument("--transport", choices=("stdio", "http"), default="stdio")
    parser.add_argument("--functions", action="store_true", help="name each function")
    given = parser.parse_args()
    with Trace() as trace:
        parts = trace.parts(given.transport, given.calls)
    everything = frozenset().union(*(part.functions for part in parts.values()))
    print(f"{'':10}{'functions':>10}{'modules':>9}{'threads':>9}{'queries':>9}{'commits':>9}")
    for role, part in parts.items():
        modules = {file for file, _ in part.functions}
        print(
            f"{role:10}{len(part.functions):10}{len(modules):9}{len(part.threads):9}{part.statements:9}{part.commits:9}"
        )
    modules, threads = {file for file, _ in everything}, sum(len(part.threads) for part in parts.values())
    statements, commits = (sum(getattr(part, what) for part in parts.values()) for what in ("statements", "commits"))
    print(f"{'all':10}{len(everything):10}{len(modules):9}{threads:9}{statements:9}{commits:9}")
    for role, part in parts.items():
        for thread, functions in sorted(part.threads.items()):
            print(f"\n{role} · {thread}: {len(functions)} functions")
            if given.functions:
                print("\n".join(f"  {file}  {function}" for file, function in sorted(functions)))


if __name__ == "__main__":
    main()

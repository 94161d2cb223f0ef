"""The first start of servers from npm and PyPI with empty caches: ours, which resolves, installs and pins the package
itself, and the official SDK's, which starts the launcher, in the same run.

    make bench ARGS=first-start        or     python -m tests.benchmarks.bench_first_start [--rounds N] [LAUNCHER:PACKAGE ...]

Every start has private caches, so each downloads and installs everything. The two clients take turns in going first.
Prints for each the time until the session is open, the number of processes started, and the era. The right era is the
one that the SDK finds when it starts the installed server once more. The goal: open at the first attempt, in the right
era, in at most 1.5 times the SDK's time.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from servers.configuration import Registration  # noqa: E402  # after django.setup()
from servers.enums import TransportKind  # noqa: E402  # after django.setup()
from sessions.host.db import Database  # noqa: E402  # after django.setup()
from sessions.host.packages.start import package_of, prepared  # noqa: E402  # after django.setup()
from sessions.mcp.client import Client  # noqa: E402  # after django.setup()
from sessions.mcp.core.capabilities import Implementation  # noqa: E402  # after django.setup()
from sessions.mcp.core.errors import McpError  # noqa: E402  # after django.setup()
from sessions.mcp.core.results import Timeouts  # noqa: E402  # after django.setup()
from sessions.mcp.core.versions import REVISIONS  # noqa: E402  # after django.setup()
from sessions.mcp.transports.registry import StdioSpec, open_transport  # noqa: E402  # after django.setup()
from tests.peers.peers import peer_python  # noqa: E402  # after django.setup()

HERE = Path(__file__).resolve().parent
#: the product's time-outs for a launcher that installs (sessions/host/launch.py)
SECONDS = 120.0
TIMEOUTS = Timeouts(connect=SECONDS, probe=5.0, silence=SECONDS, initialize=SECONDS)
GOAL = 1.5
SERVERS = (
    "npx:@upstash/context7-mcp",
    "npx:mongodb-mcp-server",
    "npx:@antv/mcp-server-chart",
    "npx:chrome-devtools-mcp",
    "npx:exa-mcp-server",
    "npx:@openbnb/mcp-server-airbnb",
    "uvx:mcp-server-time",
    "uvx:duckduckgo-mcp-server",
    "uvx:awslabs.aws-documentation-mcp-server",
    "uvx:wikipedia-mcp",
)
#: environment that a server needs to start at all
VARIABLES = {"mongodb-mcp-server": {"MDB_MCP_TELEMETRY": "disabled"}, "exa-mcp-server": {"EXA_API_KEY": "none"}}


@dataclass(frozen=True)
class Start:
    seconds: float
    processes: int
    revision: str = ""
    problem: str = ""
    #: the revision found by a start with filled caches
    revision_later: str = ""

    @property
    def era(self) -> str:
        return _era(self.revision)

    @property
    def right_era(self) -> str:
        return _era(self.revision_later)


def _era(revision: str) -> str:
    return str(REVISIONS[revision].era) if revision in REVISIONS else revision or "none"


class Caches:
    """A private folder for everything that npm and uv store, and a log of started processes."""

    def __init__(self, package: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="first-start-"))
        self.package = package

    def environment(self) -> dict[str, str]:
        places = {
            "npm_config_cache": "npm",
            "UV_CACHE_DIR": "uv",
            "UV_TOOL_DIR": "tools",
            "XDG_DATA_HOME": "data",
            "XDG_CACHE_HOME": "cache",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        mine = {name: str(self.root / place) for name, place in places.items()}
        return kept | mine | {"npm_config_update_notifier": "false"} | VARIABLES.get(self.package, {})

    def command(self, launcher: str) -> list[str]:
        programs = {"npx": [shutil.which("npx") or "npx", "-y"], "uvx": [str(Path(sys.executable).parent / "uvx")]}
        return [*programs[launcher], self.package]

    def noted(self, command: list[str]) -> list[str]:
        """With a line in a file for each start."""
        return ["/bin/sh", "-c", f'echo >> "{self.root}/starts"; exec "$@"', "sh", *command]

    @property
    def starts(self) -> int:
        noted = self.root / "starts"
        return noted.read_text().count("\n") if noted.exists() else 0


async def ours(command: list[str], environment: dict[str, str], caches: Caches) -> dict[str, object]:
    spec = StdioSpec(command[0], tuple(command[1:]), cwd=str(caches.root), env=lambda: environment)
    source = Registration("bench", TransportKind.STDIO, command=command[0], arguments=command[1:])
    package = package_of(source, spec, caches.root / "packages", SECONDS, None)
    assert package is not None, "a launcher has a package"
    db = Database()
    client: Client | None = None
    began = time.monotonic()
    try:
        spec, _ = await prepared(db, package, spec, lambda line: None)
        noted = caches.noted([spec.command, *spec.args])
        spec = replace(spec, command=noted[0], args=tuple(noted[1:]))
        client = Client(
            partial(open_transport, spec),
            client_info=Implementation("bench", "1"),
            on_event=lambda event: None,
            limits=spec.limits,
            timeouts=TIMEOUTS,
        )
        connected = await client.connect()
        return {"revision": connected.revision, "seconds": time.monotonic() - began}
    except McpError as error:
        return {"problem": error.detail, "seconds": time.monotonic() - began}
    finally:
        if client is not None:
            await client.close()
        db.stop()


def sdk(command: list[str], environment: dict[str, str]) -> dict[str, object]:
    driver = [str(peer_python("sdk2")), str(HERE / "drive_sdk_start.py"), str(2 * SECONDS), *command]
    done = subprocess.run(driver, env=environment, capture_output=True, text=True, timeout=3 * SECONDS, check=False)
    if not done.stdout.strip():
        return {"problem": done.stderr[-200:], "seconds": 0.0}
    said: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return said


def started(client: str, name: str) -> Start:
    launcher, _, package = name.partition(":")
    caches = Caches(package)
    try:
        command, environment = caches.command(launcher), caches.environment()
        said = (
            asyncio.run(ours(command, environment, caches))
            if client == "ours"
            else sdk(caches.noted(command), environment)
        )
        seconds, revision, problem = said["seconds"], said.get("revision", ""), said.get("problem", "")
        processes = caches.starts
        later = sdk(command, environment).get("revision", "") if client == "sdk" else ""
        return Start(float(str(seconds)), processes, str(revision), str(problem), str(later))
    finally:
        shutil.rmtree(caches.root, ignore_errors=True)


def measured(name: str, rounds: int, first: int) -> tuple[list[Start], list[Start]]:
    found: dict[str, list[Start]] = {"ours": [], "sdk": []}
    for number in range(rounds):
        order = ["ours", "sdk"] if (first + number) % 2 == 0 else ["sdk", "ours"]
        for client in order:
            found[client].append(started(client, name))
    return found["ours"], found["sdk"]


def row(name: str, mine: list[Start], theirs: list[Start]) -> tuple[str, bool]:
    mean = [statistics.median(start.seconds for start in starts) for starts in (mine, theirs)]
    ratio = mean[0] / mean[1] if mean[1] else 0.0
    problems = [start.problem for start in (*mine, *theirs) if start.problem]
    good = not mine[-1].problem and max(start.processes for start in mine) == 1 and ratio <= GOAL
    good = good and {start.era for start in mine} == {theirs[-1].right_era}
    words = "; ".join(problems)[:160]
    cells = (
        *(name.replace(":", " "), f"{mean[0]:.1f} s", f"{mean[1]:.1f} s", f"{ratio:.2f}"),
        *("/".join(str(start.processes) for start in starts) for starts in (mine, theirs)),
        *(mine[-1].era, theirs[-1].era, theirs[-1].right_era, words or ("yes" if good else "no")),
    )
    return f"| {' | '.join(cells)} |", good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("servers", nargs="*", default=SERVERS)
    asked = parser.parse_args()
    print("| server | ours | SDK | ratio | starts, ours | starts, SDK | era, ours | era, SDK | right era | goal met |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- | --- |")
    results = []
    for number, name in enumerate(asked.servers):
        line, good = row(name, *measured(name, asked.rounds, number))
        print(line, flush=True)
        results.append(good)
    print(f"{sum(results)} of {len(results)} open at the first try, in the right era, within {GOAL} times its time")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

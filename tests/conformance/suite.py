"""Runs the official suite as an agent: what it requires, and the verdict on one scenario.

Each run has a single scenario, because the suite's verdict over a set is too lenient: it overlooks clients that crash
or hang, and counts skipped checks as passed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.client import MARKER

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
NODE: Final = HERE / "node_modules" / "node" / "bin" / "node"
SUITE: Final = HERE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
#: seconds for one scenario, enough for a loaded machine with two slow cores
PATIENCE: Final = 120
DRIVER: Final = "tests.conformance.client"
#: the revision that labels the scenarios for everything before 2025-06-18
BEFORE: Final = "2025-03-26"
WIRE_SCHEMA: Final = "wire-schema-valid"

_ENTRY = re.compile(r"^\s+- (\S+)(?: \[(\S+)\])?$", re.MULTILINE)


@dataclass(frozen=True)
class Required:
    """The client scenarios of one set."""

    name: str
    scored: tuple[str, ...]
    unscored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The verdict on one scenario. `counts`: its checks by status. `wire`: those that check our messages against the
    schema. `problem` is empty when it passed."""

    scenario: str
    counts: Counter[str]
    wire: Counter[str]
    problem: str

    @property
    def passed(self) -> bool:
        return not self.problem


def installed() -> bool:
    return NODE.exists() and SUITE.exists()


def harness(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(NODE), str(SUITE), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE + 60, check=False)


def required(revision: str) -> Required:
    """The scenarios that the suite requires of a client of this revision."""
    listing = harness("list", "--requirements", revision).stdout
    scored, _, unscored = listing.partition("never scored")
    clients = scored.partition("Client scenarios")[2]
    return Required(
        revision,
        tuple(name for name, _ in _ENTRY.findall(clients)),
        tuple(name for name, side in _ENTRY.findall(unscored) if side == "client"),
    )


def back_compat() -> Required:
    """The scenarios that only a revision before 2025-06-18 has."""
    listing = harness("list", "--client").stdout
    return Required(BEFORE, tuple(name for name, since in _ENTRY.findall(listing) if since == BEFORE))


def run(scenario: str, revision: str, out: Path) -> Verdict:
    """Run our driver through one scenario, which leaves its files in `out`."""
    python = os.path.relpath(sys.executable, ROOT)
    where = out / revision / scenario.replace("/", "-")
    shutil.rmtree(where, ignore_errors=True)  # files of an earlier run would be counted again
    # --force: otherwise the suite excludes extension scenarios from every revision, even when they are named.
    words = ("--scenario", scenario, "--spec-version", revision, "--force", "--timeout", str(PATIENCE * 1000))
    done = harness("client", "--command", f"{python} -m {DRIVER}", *words, "-o", where)
    checks = [check for file in where.rglob("checks.json") for check in json.loads(file.read_text())]
    counts = Counter(check["status"] for check in checks)
    wire = Counter(check["status"] for check in checks if check["id"] == WIRE_SCHEMA)
    said = "".join(file.read_text() for file in where.rglob("stdout.txt"))
    return Verdict(scenario, counts, wire, _problem(counts, checks, said, done))


def _problem(
    counts: Counter[str], checks: list[dict[str, str]], said: str, done: subprocess.CompletedProcess[str]
) -> str:
    bad = [f"{check['id']} {check['status']}" for check in checks if check["status"] in ("FAILURE", "WARNING")]
    if bad:
        return ", ".join(sorted(set(bad)))
    if not counts["SUCCESS"]:
        return f"nothing was checked: {(done.stdout + done.stderr)[-300:].strip()}"
    if MARKER not in said.splitlines():
        return "our driver did not come to its end"
    return ""

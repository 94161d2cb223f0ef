"""Measures search and pages over many rows: 1,000 servers, 1 million calls, 5 million audit events.

python -m tests.benchmarks.bench_audit [--calls N] [--events N] [--servers N] [--rounds N] [--database sqlite|postgresql] [--keep DIRECTORY] [--only WORD]

Each case runs in a process of its own settings, a few times with other values each; the table shows the 95th percentile
of all runs, the median of the CPU time of the process (without PostgreSQL's), the number of statements and the size of
the page. Goals: p95 at most 100 ms on SQLite and 200 ms on
PostgreSQL, 30 statements, 150 kB, of the cases "every page" 200 kB. They are printed as met or missed; no timing makes the run fail. `--rounds 0` only
fills the databases to keep; `--only` measures the cases whose names contain one of its words.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.tools.postgres import cluster
from tests.tools.prepared import ROOT, clean_environment, copy_static_files, prepare

GOALS = {"sqlite": 100.0, "postgresql": 200.0}
STATEMENTS, KILOBYTES, KILOBYTES_OF_EVERY_PAGE = 30, 150, 200


@contextmanager
def database(kind: str, keep: str | None) -> Iterator[dict[str, str]]:
    if kind == "sqlite":
        yield {}
    else:
        with cluster(Path(keep) / "postgresql-cluster" if keep else None) as url:
            yield {"DATABASE_URL": url}


def measured(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    directory = Path(options.keep) / kind if options.keep else Path(tempfile.mkdtemp(prefix="mcpadmin-bench-"))
    try:
        if (directory / "secret_key").exists():
            copy_static_files(directory)  # the code may be newer than what was kept; the cases migrate the database
        else:
            prepare(directory)
        with database(kind, options.keep) as settings:
            words = [str(options.servers), str(options.calls), str(options.events), str(options.rounds), *options.only]
            environment = clean_environment(
                MCPADMIN_DATA_DIR=str(directory), DJANGO_SETTINGS_MODULE="mcpadmin.settings", **settings
            )
            command = [sys.executable, "-m", "tests.benchmarks.audit_cases", *words]
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        if not options.keep:
            shutil.rmtree(directory, ignore_errors=True)


def show(kind: str, found: dict[str, Any]) -> None:
    filled = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in found["filled"].items())
    print(f"\n{kind}: {found['size']:.1f} GB; filled in: {filled}")
    print(f"{'case':<44}{'p50 ms':>9}{'p95 ms':>9}{'CPU ms':>9}{'statements':>12}{'kB':>8}")
    missed = 0
    for case in found["cases"]:
        most = KILOBYTES_OF_EVERY_PAGE if case["name"].startswith("every page:") else KILOBYTES
        met = case["p95"] <= GOALS[kind] and case["statements"] <= STATEMENTS and case["kilobytes"] <= most
        missed += not met
        size = f"{case['kilobytes']:.0f}" if case["kilobytes"] else "—"
        line = f"{case['name']:<44}{case['p50']:>9.1f}{case['p95']:>9.1f}{case['cpu']:>9.1f}{case['statements']:>12}{size:>8}"
        print(line + ("" if met else "  MISSED"), flush=True)
    if found["index_ms"] is not None:
        print(f"index: {found['index_ms']:.2f} ms CPU a call")
    print(f"{missed} of {len(found['cases'])} cases missed their goal")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", type=int, default=1_000)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--database", choices=list(GOALS), action="append")
    parser.add_argument("--keep", help="directory that keeps the filled databases, to measure them again")
    parser.add_argument("--only", action="append", default=[], help="part of the names of cases")
    options = parser.parse_args()
    print(f"{options.servers:,} servers, {options.calls:,} calls, {options.events:,} events; {os.cpu_count()} cores")
    for kind in options.database or list(GOALS):
        show(kind, measured(kind, options))


if __name__ == "__main__":
    main()

"""Short runs of the benchmarks work and print everything that a long run does. Their numbers mean nothing."""

import subprocess
import sys

import pytest

from tests.peers.peers import peer_python
from tests.tools.stack import ROOT, clean_environment

pytestmark = [pytest.mark.integration, pytest.mark.long]


def told_by(module: str, *words: str, seconds: float = 110) -> str:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *words]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(("case", "floor", "goals"), [("stdio-legacy", "pipes", 3), ("http-modern-sse", "engine", 5)])
def test_a_case_has_a_row_for_each_client_and_a_verdict_for_each_goal(case: str, floor: str, goals: int) -> None:
    peer_python("sdk2")  # skips when the peers are not installed
    told = told_by("bench_client", "--rounds", "1", "--seconds", "0.1", case)
    rows = [line.split()[:2] for line in told.splitlines()]
    assert all([client, callers] in rows for client in ("ours", "sdk", floor) for callers in ("1", "50"))
    assert told.count("(goal: ") == goals


def test_a_hostile_scene_has_a_row_that_says_how_it_ended() -> None:
    told = told_by("bench_neighbours", "--seconds", "0.5", "json:wide-header")
    assert "json:wide-header" in told
    assert told.rstrip().endswith("header_limit")


def test_search_over_many_rows_has_a_row_for_each_case() -> None:
    words = ("--servers", "4", "--calls", "400", "--events", "2000", "--rounds", "1", "--database", "sqlite")
    told = told_by("bench_audit", *words)
    assert all(case in told for case in ("first page", "deep page", "rare word", "histogram of 30 days", "overview"))
    assert "ms CPU a call" in told

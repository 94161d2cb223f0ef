"""In a network where every address answers and DNS answers change, the guard lets 0 connections reach an internal
address (R1-R6, R9)."""

import subprocess
from pathlib import Path

import pytest

from .own_network.namespace import UNSHARE, command

pytestmark = [pytest.mark.integration, pytest.mark.slow]
INSIDE = sorted(map(str, (Path(__file__).parent / "own_network").glob("inside_*.py")))
ROOT = Path(__file__).parents[4]


def test_nothing_gets_inside_from_any_source_of_a_url() -> None:
    if subprocess.run([*UNSHARE, "ip", "link"], capture_output=True).returncode:
        pytest.skip("this machine gives tests no network of their own (unshare)")
    run = subprocess.run(
        command("-q", "-n0", "--show-capture=no", "-p", "no:cacheprovider", *INSIDE),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-4000:]
    assert "skipped" not in run.stdout

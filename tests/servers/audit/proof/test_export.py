"""An export is verified by the one file that needs neither mcpadmin nor its database."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servers.audit.proof import verify_export
from servers.audit.verify import verify
from tests.servers.audit.proof import log

pytestmark = pytest.mark.django_db
PROGRAM = Path(verify_export.__file__)


def run(export: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """On a clean machine: isolated from the product's packages and variables."""
    command = [sys.executable, "-I", str(PROGRAM), str(export), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")


def test_a_clean_log_is_accepted_by_both_verifiers(tmp_path: Path, settings: Any) -> None:
    log.fill()
    assert verify().ok, verify()
    done = run(log.export_to(tmp_path / "e"), "--key", log.public_key(), "--checkpoints", str(settings.CHECKPOINT_FILE))
    assert (done.returncode, done.stderr) == (0, "")
    assert "25 events verified, 12 payloads, 0 erased" in done.stdout
    assert "25 events lead to a checkpoint" in done.stdout


def test_the_program_has_at_most_200_lines() -> None:
    assert len(PROGRAM.read_text().splitlines()) <= 200

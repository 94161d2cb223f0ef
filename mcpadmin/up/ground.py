"""What must hold before anything starts. Each failing point is one line that says what to do."""

import os
import sys
from pathlib import Path

from django.conf import settings
from django.core.checks import ERROR, run_checks

from mcpadmin.checks import TAG
from mcpadmin.up.problems import StartProblem

NEEDED_PYTHON = (3, 11)


def check_python() -> None:
    if sys.version_info < NEEDED_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise StartProblem(
            f"this is Python {found} and mcpadmin needs 3.11 or newer", "Install it and make the environment anew."
        )


def prepare_data_dir(path: Path) -> None:
    """Creates it with mode 700 and proves that files can be written there."""
    os.umask(0o077)
    remedy = "Make it writable for this user, or choose another with --data-dir."
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_private(path)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as problem:
        raise StartProblem(f"the data directory {path} cannot be used ({problem.strerror})", remedy) from problem


def _make_private(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        path.chmod(mode & 0o700)


def check_installation(data_dir: Path) -> None:
    """The errors among the system checks of mcpadmin.checks; key files get mode 600 where they are looser."""
    if problem := next((found for found in run_checks(tags=[TAG]) if found.level >= ERROR), None):
        raise StartProblem(problem.msg, problem.hint or "")
    for path in (data_dir / "secret_key", Path(settings.KEYRING_FILE)):
        if path.exists() and path.stat().st_mode & 0o077:
            path.chmod(0o600)

"""One `up` for each data directory, by flock: the kernel frees it when the last holder of the descriptor is gone."""

import fcntl
import os
import time
from pathlib import Path

from mcpadmin.up.problems import StartProblem

NAME = "up.lock"
# How long a guard may take to clear up after an `up` that was killed (it shares the lock until it is done).
GUARD_SECONDS = 8.0


def acquire(data_dir: Path) -> int:
    """The descriptor that holds the lock. Raises StartProblem when another `up` runs here."""
    path = data_dir / NAME
    deadline = time.monotonic() + GUARD_SECONDS
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if _locked(descriptor) and _is_still(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            return descriptor
        holder = _pid_in(descriptor)
        os.close(descriptor)
        if _is_alive(holder) or time.monotonic() > deadline:
            raise _already_running(data_dir, holder)
        time.sleep(0.1)  # the holder is dead and its guard is at work


def release(data_dir: Path, descriptor: int) -> None:
    (data_dir / NAME).unlink(missing_ok=True)
    os.close(descriptor)


def _already_running(data_dir: Path, holder: int) -> StartProblem:
    who = f"mcpadmin is already running in {data_dir}" + (f" (process {holder})" if holder else "")
    return StartProblem(who, "Stop it first, or give this one a directory of its own with --data-dir.")


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """False when the previous holder removed the file between our open and our lock."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _pid_in(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).partition(b"\n")[0]
    return int(text) if text.isdigit() else 0


def _is_alive(pid: int) -> bool:
    """A pid of 0 (nothing written yet) counts as alive for no one: the caller tries again until its deadline."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def note(descriptor: int, url: str) -> None:
    """Leave the address beside the pid, for `manage.py setup_link`."""
    os.pwrite(descriptor, f"{os.getpid()}\n{url}\n".encode(), 0)


def noted_url(data_dir: Path) -> str:
    """The address of the `up` that runs on this data directory, "" when none does."""
    try:
        lines = (data_dir / NAME).read_text().splitlines()
    except OSError:
        return ""
    return lines[1] if len(lines) > 1 else ""

"""The preconditions of a start: Python, the data directory, the lock, the listening socket.

Each failure is one line that says what to do.
"""

import errno
import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mcpadmin.up.options import StartProblem

NEEDED_PYTHON = (3, 11)
LOCK = "up.lock"
# How long a guard may take to clean up after a killed `up`. It shares the lock until it is done.
GUARD_SECONDS = 8.0
BACKLOG = 512
NOT_SECRET = {"static", "static.new", "static.old", "servers"}
#: at least one of these is in every data directory, or in a backup of it: which ones depends on where database, Redis and
#: keys are
MARKS = (
    "secret_key",
    "keyring.json",
    "checkpoint_key.json",
    "mcpadmin.sqlite3",
    "checkpoints.jsonl",
    "valkey",
    "static/.fingerprint",
    LOCK,
)
#: in a new file system, or left by a start that was killed
MEANINGLESS = re.compile(r"lost\+found|\.probe-\d+")
#: in `servers`, which may be all that was restored, or a volume of its own in a new data directory
SERVER_FOLDER = re.compile(r"(draft-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_python() -> None:
    if sys.version_info < NEEDED_PYTHON:
        found = ".".join(map(str, sys.version_info[:3]))
        raise StartProblem(
            f"this is Python {found}, but mcpadmin needs 3.11 or newer",
            "Install it and recreate the virtual environment.",
        )


def refuse_foreign(path: Path) -> None:
    """Raise StartProblem for a directory that contains something else: a start would make its files private, hand them
    over to another user and replace its static files."""
    with usable(path):
        try:
            names = _names(path)
        except FileNotFoundError:
            return
        if any((path / mark).exists() for mark in MARKS):
            return
        if "servers" in names and (path / "servers").is_dir():
            kept = _names(path / "servers")
            if kept and all(map(SERVER_FOLDER.fullmatch, kept)):
                return
            if not kept:
                names.remove("servers")
        if not names:
            return
    raise StartProblem(
        f"{path} is not empty, and nothing in it belongs to mcpadmin",
        "Use a new or empty directory as the data directory (--data-dir or MCPADMIN_DATA_DIR).",
    )


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if not MEANINGLESS.fullmatch(entry.name)}


def prepare_data_dir(path: Path) -> None:
    """Create the directory with mode 700 and prove that files can be written in it."""
    os.umask(0o077)
    with usable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()


@contextmanager
def usable(data_dir: Path) -> Iterator[None]:
    """Any failure to access files in the data directory becomes a StartProblem."""
    try:
        yield
    except OSError as problem:
        where = f": {problem.filename}" if problem.filename and str(problem.filename) != str(data_dir) else ""
        remedy = "Make it writable for this user, or choose another with --data-dir."
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "Free some space, or choose another with --data-dir."
        raise StartProblem(
            f"the data directory {data_dir} cannot be used ({problem.strerror}{where})", remedy
        ) from problem


def tighten(path: Path) -> list[str]:
    """Remove the group's and others' access to the data directory and our files in it. Returns a line about those that
    were accessible."""
    _forget_schedule(path / "beat")
    tightened, failed = [], []
    for found in (path, *_ours(path)):
        try:
            mode = found.lstat().st_mode & 0o777
            if mode & 0o077:
                found.chmod(mode & 0o700)
                tightened.append(f"{found} (mode {mode:o})")
        except FileNotFoundError:
            continue  # the database removes files of its own
        except OSError as problem:
            failed.append(f"{found} ({problem.strerror})")
    lines = []
    if tightened:
        lines.append(f"permissions tightened (other users had access): {_some(tightened)}")
    if failed:
        lines.append(
            f"warning: other users have access, and the permissions could not be tightened: {_some(failed)}; change the owner or mode"
        )
    return lines


def _forget_schedule(folder: Path) -> None:
    """Earlier versions kept the schedule there, in a pickle."""
    if folder.is_symlink():
        return
    with suppress(OSError):
        for file in folder.glob("schedule*"):
            file.unlink()
        folder.rmdir()


def _some(texts: list[str]) -> str:
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _ours(path: Path) -> Iterator[Path]:
    """Not the collected static files, which are public, nor what stdio servers keep in their own directories."""
    for entry in path.iterdir():
        if entry.name in NOT_SECRET or entry.is_symlink():
            continue
        yield entry
        if entry.is_dir():
            yield from (below for below in entry.rglob("*") if not below.is_symlink())


def acquire_lock(data_dir: Path) -> int:
    """Return the descriptor that holds the lock. Raises StartProblem when another `up` runs on this data directory.

    Uses flock: the kernel releases it when the last process that shares the descriptor exits."""
    path = data_dir / LOCK
    deadline = time.monotonic() + GUARD_SECONDS
    with usable(data_dir):
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            if _locked(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
            text = os.pread(descriptor, 32, 0).partition(b"\n")[0]
            holder = int(text) if text.isdigit() else 0
            os.close(descriptor)
            if _is_alive(holder) or time.monotonic() > deadline:
                who = f"mcpadmin is already running in {data_dir}" + (f" (process {holder})" if holder else "")
                raise StartProblem(who, "Stop it first, or start this one with another --data-dir.")
            time.sleep(0.1)  # the holder is dead and its guard is cleaning up


def _locked(path: Path, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the file between our open and our lock.
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except (BlockingIOError, FileNotFoundError):
        return False


def _is_alive(pid: int) -> bool:
    """A pid of 0 (nothing written yet) counts as dead, so the caller retries until its deadline."""
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, and owned by another user
        pass
    return True


def release_lock(data_dir: Path, descriptor: int) -> None:
    (data_dir / LOCK).unlink(missing_ok=True)
    os.close(descriptor)


def note_url(descriptor: int, url: str) -> None:
    """Store the URL next to the pid, for `manage.py setup_link`."""
    os.pwrite(descriptor, f"{os.getpid()}\n{url}\n".encode(), 0)


def noted_url(data_dir: Path) -> str:
    """Return the URL of the `up` that runs on this data directory, or "" when none runs."""
    try:
        lines = (data_dir / LOCK).read_text().splitlines()
    except OSError:
        return ""
    return lines[1] if len(lines) > 1 else ""


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket in `up`, so that a busy port shows before any part starts.

    Restarting a web process then refuses no connection."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as problem:  # UnicodeError: not a host name, such as 127..0.1
        raise StartProblem(
            f"the host {host!r} has no address on this machine",
            "Set --host to 127.0.0.1, 0.0.0.0 or an address of this machine.",
        ) from problem
    family, address = found[0][0], found[0][4]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise _why_not_listening(problem, host, port) from problem
    listener.setblocking(False)
    return listener


def _why_not_listening(problem: OSError, host: str, port: int) -> StartProblem:
    match problem.errno:
        case errno.EADDRINUSE:
            return StartProblem(
                f"port {port} on {host} is in use",
                f"Stop the program that uses it, or choose another port: --port {port + 1}",
            )
        case errno.EACCES:
            return StartProblem(
                f"port {port} requires privileges that this user does not have",
                "Choose a port above 1023, such as --port 8000",
            )
        case errno.EADDRNOTAVAIL:
            return StartProblem(
                f"{host} is not an address of this machine",
                "Set --host to 127.0.0.1, 0.0.0.0 or an address of this machine.",
            )
        case _:
            return StartProblem(
                f"cannot listen on {host}:{port} ({problem.strerror})", "Choose another --host or --port."
            )

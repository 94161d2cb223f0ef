"""Spawning and reaping. Every part dies with `up`: on Linux by PR_SET_PDEATHSIG, elsewhere by the guard.

The death signal is set between fork and exec and the parent is looked at once more after it, so that an `up` killed at
any moment leaves nobody; the `setpriv` program would leave a gap there. It fires when the *thread* that forked ends:
only the main thread spawns.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Programs that we start for the user (a browser) carry this and are never swept.
KEEP_MARKER = "MCPADMIN_KEEP"


def _load_prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
    prctl.restype = ctypes.c_int
    return prctl


_prctl = _load_prctl()


def become_subreaper() -> None:
    """Orphans of the parts (a stdio server's grandchild) fall to this process instead of to init."""
    if _prctl:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _dying_with(parent: int) -> Callable[[], None] | None:
    prctl = _prctl
    if prctl is None:
        return None

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


def spawn(
    argv: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int] = (), cwd: Path | None = None
) -> subprocess.Popen[bytes]:
    """A child in a session of its own (the terminal's Ctrl-C is for `up` alone), both outputs as pipes."""
    return subprocess.Popen(  # noqa: S603 - the command lines of parts.py, no shell
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        preexec_fn=_dying_with(os.getpid()),
    )


def reap() -> Iterator[tuple[int, int]]:
    """(pid, exit status as in Popen.returncode) of every child that ended, adopted ones included."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def kill_group(pid: int, how: signal.Signals) -> None:
    """Signal a part and all that stayed in its group."""
    try:
        os.killpg(pid, how)
    except ProcessLookupError:
        return
    except PermissionError:
        os.kill(pid, how)  # macOS refuses a group that holds a zombie


def adopted(known: set[int]) -> list[int]:
    """Children of this process that it did not start itself, found in /proc (Linux only)."""
    me = os.getpid()
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit()) if _prctl else iter(())
    return [pid for pid in pids if pid not in known and _parent_of(pid) == me and not _is_kept(pid)]


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_kept(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{KEEP_MARKER}=1".encode() in file.read().split(b"\0")
    except OSError:
        return False


def describe_exit(status: int) -> str:
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exited with status {status}"

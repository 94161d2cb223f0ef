"""Cleans up after a killed `up`. Runs as a separate script and uses only the standard library.

Its stdin is a pipe whose other end only `up` holds open. Lines `+<pid>` and `-<pid>` report parts (each leads a process
group). End of file without the line `done` means that `up` was killed. The guard then kills the remaining parts and
removes the files of a running installation. It inherits the lock of `up` (argument 3), so no new `up` can start before
the guard is done.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(lock_file: str, valkey_dir: str, descriptor: str) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups, finished = _listen()
    if finished:
        return
    _kill(groups)
    _remove_files(Path(lock_file), Path(valkey_dir))
    os.close(int(descriptor))


def _listen() -> tuple[set[int], bool]:
    groups: set[int] = set()
    for line in sys.stdin:
        word = line.strip()
        if word == "done":
            return groups, True
        if word.startswith("+"):
            groups.add(int(word[1:]))
        else:
            groups.discard(int(word[1:]))
    return groups, False


def _kill(groups: set[int]) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(_is_left(group) for group in groups):
        time.sleep(0.05)  # not our children, so we cannot wait for them


def _is_left(group: int) -> bool:
    """A zombie that a slow init has not reaped counts as gone."""
    try:
        os.killpg(group, 0)
        return Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OSError:
        return not Path("/proc/self").exists()  # no /proc (macOS): killpg found it; with /proc the leader is gone


def _remove_files(lock_file: Path, valkey_dir: Path) -> None:
    record = valkey_dir / "socket-path"
    with contextlib.suppress(OSError):
        short = Path(record.read_text()).parent
        if short.name.startswith("mcpadmin-"):
            shutil.rmtree(short, ignore_errors=True)
    for path in (record, *(valkey_dir / name for name in ("valkey.sock", "users.acl", "login")), lock_file):
        path.unlink(missing_ok=True)


class OrphanGuard:
    """Runs in `up`: starts the script and reports the parts to it."""

    def __init__(self, lock_file: Path, valkey_dir: Path, lock_descriptor: int) -> None:
        self._argv = [
            sys.executable,
            "-I",
            "-S",
            __file__,
            str(lock_file),
            str(valkey_dir),
            str(lock_descriptor),
        ]
        self._lock_descriptor = lock_descriptor
        self._groups: set[int] = set()
        self._gone = False
        self._popen, self._pipe = self._start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def _start(self) -> "tuple[subprocess.Popen[bytes], int]":
        """The script, and the pipe through which it is notified."""
        listening, telling = os.pipe()
        quiet = subprocess.DEVNULL
        try:
            started = subprocess.Popen(  # noqa: S603 - our own script
                self._argv,
                stdin=listening,
                stdout=quiet,
                stderr=quiet,
                pass_fds=(self._lock_descriptor,),
                start_new_session=True,
            )
        except OSError:
            os.close(telling)
            raise
        finally:
            os.close(listening)
        return started, telling

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, f"{line}\n".encode())
        except BrokenPipeError:
            return  # the guard was killed; `revive` starts its successor and reports every group again

    def started(self, pid: int) -> None:
        self._groups.add(pid)
        self._tell(f"+{pid}")

    def ended(self, pid: int) -> None:
        if pid in self._groups:
            self._groups.discard(pid)
            self._tell(f"-{pid}")

    def revive(self, status: int) -> None:
        self._popen.returncode = status
        self._gone = True
        self.restore()

    def restore(self) -> None:
        """Start a successor if the script is gone. If the system cannot start a process now, the next call tries
        again."""
        if not self._gone:
            return
        try:
            started, telling = self._start()
        except OSError:
            return
        os.close(self._pipe)
        self._popen, self._pipe, self._gone = started, telling, False
        for pid in self._groups:
            self._tell(f"+{pid}")

    def dismiss(self) -> None:
        self._tell("done")
        os.close(self._pipe)
        self._popen.wait(2)


if __name__ == "__main__":
    main(*sys.argv[1:4])

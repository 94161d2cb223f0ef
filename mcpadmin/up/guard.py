"""Cleans up after an `up` that was killed: run as a script of its own, standard library only.

Its stdin is a pipe whose other end only `up` holds. Lines `+<pid>` and `-<pid>` tell of parts (each leads a process
group). End of file without the line `done` means that `up` was killed: the guard kills what is left of the parts and
removes the files of a running installation. It shares the lock of `up` (argument 3), so no new `up` starts meanwhile.
"""

import contextlib
import os
import shutil
import signal
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
        time.sleep(0.05)  # not our children: there is nothing to wait on


def _is_left(group: int) -> bool:
    """A zombie that waits for a slow init counts as gone."""
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
    for path in (record, valkey_dir / "valkey.sock", lock_file):
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])

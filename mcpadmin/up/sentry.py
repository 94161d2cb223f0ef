"""The side of `up` that talks to its guard (see guard.py)."""

import os
import subprocess
import sys
from pathlib import Path

from mcpadmin.up import guard, lock


class Sentry:
    def __init__(self, data_dir: Path, valkey_dir: Path, lock_descriptor: int) -> None:
        self._argv = [
            sys.executable,
            "-I",
            "-S",
            guard.__file__,
            str(data_dir / lock.NAME),
            str(valkey_dir),
            str(lock_descriptor),
        ]
        self._lock_descriptor = lock_descriptor
        self._groups: set[int] = set()
        self._start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def _start(self) -> None:
        listening, self._pipe = os.pipe()
        quiet = subprocess.DEVNULL
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - our own script
                self._argv,
                stdin=listening,
                stdout=quiet,
                stderr=quiet,
                pass_fds=(self._lock_descriptor,),
                start_new_session=True,
            )
        finally:
            os.close(listening)
        for pid in self._groups:
            self._tell(f"+{pid}")

    def _tell(self, line: str) -> None:
        try:
            os.write(self._pipe, f"{line}\n".encode())
        except BrokenPipeError:
            return  # it was killed; `revive` tells its successor everything

    def started(self, pid: int) -> None:
        self._groups.add(pid)
        self._tell(f"+{pid}")

    def ended(self, pid: int) -> None:
        if pid in self._groups:
            self._groups.discard(pid)
            self._tell(f"-{pid}")

    def revive(self, status: int) -> None:
        self._popen.returncode = status
        os.close(self._pipe)
        self._start()

    def dismiss(self) -> None:
        self._tell("done")
        os.close(self._pipe)
        self._popen.wait(2)

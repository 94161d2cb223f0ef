"""Measures how much disk space the private folders of confined servers take: no kernel limits that per folder."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from servers import limits
from sessions.host import trees

#: folders are measured again when this much space or this many files were taken since the last look
_STEP_BYTES, _STEP_FILES = 256 * 1024**2, 50_000
#: entries counted in one server's folders; a server with more is over any limit
MOST_FILES = limits.number("stdio_files")
_BLOCK = 512


class DiskUsage(NamedTuple):
    size: int
    files: int


class DiskMeter:
    """Measuring walks folders, so it happens only after the file system has become fuller, and for servers that were over
    their limit. Only one thread uses it."""

    def __init__(self) -> None:
        self._free: dict[int, tuple[int, int]] = {}
        self._over = set[int]()

    def excess(self, folders: Mapping[int, Sequence[str]], most: int) -> dict[int, DiskUsage]:
        """The usage of each server that takes more than `most` bytes or has too many files. `folders` is keyed by
        session."""
        fuller = self._fuller({place for places in folders.values() for place in places[:1]})
        looked_at = [session for session in folders if fuller or session in self._over]
        taken = {session: _taken(folders[session]) for session in looked_at}
        over = {session: one for session, one in taken.items() if one.size > most or one.files > MOST_FILES}
        self._over = set(over)
        return over

    def _fuller(self, places: set[str]) -> bool:
        """Whether one of the file systems has much less room than when it was last found so, or was never seen."""
        found = False
        for place in places:
            try:
                device, state = os.stat(place).st_dev, os.statvfs(place)
            except OSError:
                continue  # the folder is being removed with its server
            now = (state.f_bavail * state.f_frsize, state.f_favail)
            before = self._free.get(device)
            if before is None or before[0] - now[0] >= _STEP_BYTES or before[1] - now[1] >= _STEP_FILES:
                self._free[device] = now
                found = True
            else:
                self._free[device] = max(before[0], now[0]), max(before[1], now[1])
        return found


def _taken(folders: Sequence[str]) -> DiskUsage:
    """The space taken on disk. Links are counted, not followed."""
    size = files = 0
    for folder in folders:
        with suppress(OSError):  # the folder was removed meanwhile
            for state in trees.states(folder):
                files += 1
                if files > MOST_FILES:
                    return DiskUsage(size, files)
                size += state.st_blocks * _BLOCK
    return DiskUsage(size, files)

"""How much disk space the own folders of confined servers take. No kernel limits that for a folder, so it is measured."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from servers import limits
from sessions.host import trees

#: of space or files that something took since the last look: then folders are measured again
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
        """What each server takes, of those that take more than `most` bytes, or have too many files. `folders`: by session."""
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
                continue  # the folder goes with its server
            now = (state.f_bavail * state.f_frsize, state.f_favail)
            before = self._free.get(device)
            if before is None or before[0] - now[0] >= _STEP_BYTES or before[1] - now[1] >= _STEP_FILES:
                self._free[device] = now
                found = True
            else:
                self._free[device] = max(before[0], now[0]), max(before[1], now[1])
        return found


def _taken(folders: Sequence[str]) -> DiskUsage:
    """On disk. Links are counted, not followed."""
    size = files = 0
    for folder in folders:
        with suppress(OSError):  # the folder was removed meanwhile
            for state in trees.states(folder):
                files += 1
                if files > MOST_FILES:
                    return DiskUsage(size, files)
                size += state.st_blocks * _BLOCK
    return DiskUsage(size, files)

"""How much disk space the own folders of confined servers take. No kernel limits that for a folder, so it is measured."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

#: of space or files that something took since the last look: then folders are measured again
_STEP_BYTES, _STEP_FILES = 256 * 1024**2, 50_000
#: entries counted in one server's folders; a server with more is over any limit
MOST_FILES = 1_000_000
_BLOCK = 512


class DiskMeter:
    """Measuring walks folders, so it happens only after the file system has become fuller, and for servers that were over
    their limit. Only one thread uses it."""

    def __init__(self) -> None:
        self._free: dict[int, tuple[int, int]] = {}
        self._over = set[int]()

    def excess(self, folders: Mapping[int, Sequence[str]], most: int) -> dict[int, int]:
        """The bytes that each server takes, of those that take more than `most`. `folders`: by session."""
        fuller = self._fuller({place for places in folders.values() for place in places[:1]})
        looked_at = [session for session in folders if fuller or session in self._over]
        taken = {session: sum(map(_taken, folders[session])) for session in looked_at}
        over = {session: size for session, size in taken.items() if size > most}
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


def _taken(folder: str) -> int:
    """Bytes on disk. Links are counted, not followed."""
    total, seen, todo = 0, 0, [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MOST_FILES:
                        return 1 << 62
                    with suppress(FileNotFoundError):  # removed meanwhile
                        total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(entry.path)
        except OSError:
            continue  # the folder was removed meanwhile
    return total

"""Shared by the watched servers of both SDKs: notes in a folder, and notifications when one of them changes.

A note `note://a` is the file `a` of the folder NOTES. A missing file reads as empty text.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

FOLDER = Path(os.environ["NOTES"])
Tell = Callable[[str], Awaitable[None]]
_telling: "asyncio.Task[None] | None" = None


def read(name: str) -> str:
    """For a client: each leaves a line."""
    with (FOLDER / ".reads").open("a") as reads:
        reads.write(f"{name}\n")
    return _text(name)


def _text(name: str) -> str:
    path = FOLDER / name
    return path.read_text() if path.exists() else ""


def tell_from_now_on(tell: Tell) -> None:
    """Start the watch unless it runs already. Call this in every handler."""
    global _telling
    if _telling is None:
        _telling = asyncio.create_task(_watch(tell))


async def _watch(tell: Tell) -> None:
    known = _stamps()
    while True:
        await asyncio.sleep(0.02)
        now = _stamps()
        for name in now:
            if now[name] != known.get(name):
                await _tell_often_enough(tell, name)
        known = now


async def _tell_often_enough(tell: Tell, name: str) -> None:
    """Notify once, or 40 times for a note that reads `burst 40`."""
    word, _, number = _text(name).partition(" ")
    for _ in range(int(number) if word == "burst" else 1):
        await tell(f"note://{name}")


def _stamps() -> dict[str, tuple[int, int]]:
    """Inode and mtime of each note. The test renames notes into place, so no file is ever half written."""
    found = {path.name: path.stat() for path in FOLDER.iterdir() if not path.name.startswith(".")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def announce_process() -> None:
    with (FOLDER / ".pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")


def mode() -> tuple[str, int]:
    return sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0

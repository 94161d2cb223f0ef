"""What the watched servers of both SDKs share: notes in a folder, and the news that one of them changed.

A note `note://a` is the file `a` of the folder NOTES; a file that is missing reads as nothing.
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
    path = FOLDER / name
    return path.read_text() if path.exists() else ""


def tell_from_now_on(tell: Tell) -> None:
    """Call it in a handler: the first one starts the watch."""
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
    """A note `burst 40` is told of 40 times."""
    word, _, number = read(name).partition(" ")
    for _ in range(int(number) if word == "burst" else 1):
        await tell(f"note://{name}")


def _stamps() -> dict[str, tuple[int, int]]:
    """Renamed into place by the test, so that a file is never seen half written."""
    found = {path.name: path.stat() for path in FOLDER.iterdir() if not path.name.startswith(".")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


def announce_process() -> None:
    with (FOLDER / ".pids").open("a") as pids:
        pids.write(f"{os.getpid()}\n")


def mode() -> tuple[str, int]:
    return sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0

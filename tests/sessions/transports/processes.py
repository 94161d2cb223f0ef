"""Which processes are there: read from /proc, so that a test believes nobody."""

import asyncio
import contextlib
from pathlib import Path


def is_gone(pid: int) -> bool:
    """A zombie of somebody else counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def gone(pid: int) -> bool:
    """Whether a process is gone within ten seconds."""
    for _ in range(200):
        if is_gone(pid):
            return True
        await asyncio.sleep(0.05)
    return False


def children() -> set[int]:
    """All our children, of any thread."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return found


def descendants(pid: int) -> set[int]:
    found, frontier = set(), {pid}
    while frontier:
        parent = frontier.pop()
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                frontier |= {int(child) for child in path.read_text().split()} - found
        found.add(parent)
    return found

"""Reads from /proc which processes exist, so that a test relies on no one's report."""

import asyncio
import contextlib
from pathlib import Path


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie counts as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def gone(pid: int) -> bool:
    """Whether the process is gone within ten seconds."""
    for _ in range(200):
        if is_gone(pid):
            return True
        await asyncio.sleep(0.05)
    return False


def children() -> set[int]:
    """The children of all our threads."""
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

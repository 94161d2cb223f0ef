"""How children are contained so that none outlives us. The first use probes what works.

`setpriv --pdeathsig` ends the child with the thread that started it. The PID namespace of `unshare` ends everything
that the child started, even processes that left its process group.
"""

import asyncio
import os
import shutil
import sys
from enum import StrEnum
from typing import Final


class Isolation(StrEnum):
    """From complete to none; suitable to show on a page."""

    PID_NAMESPACE = "pid_namespace"
    PID_NAMESPACE_USER = "pid_namespace_user"
    PARENT_DEATH = "parent_death"
    NONE = "none"


_SETPRIV: Final = ("setpriv", "--pdeathsig", "KILL", "--")
_UNSHARE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

PREFIXES: Final[dict[Isolation, tuple[str, ...]]] = {
    Isolation.PID_NAMESPACE: (*_SETPRIV, *_UNSHARE, "--"),
    Isolation.PID_NAMESPACE_USER: (*_SETPRIV, *_UNSHARE, "--user", "--map-current-user", "--"),
    Isolation.PARENT_DEATH: _SETPRIV,
    Isolation.NONE: (),
}

_found: Isolation | None = None


async def isolation() -> Isolation:
    """The best isolation that works here. The first call in a process probes for it."""
    global _found
    if _found is None:
        _found = await _probe()
    return _found


def found() -> Isolation | None:
    """The result of the first call of `isolation`; None before that."""
    return _found


async def _probe() -> Isolation:
    if shutil.which("setpriv") is None:
        return Isolation.NONE
    candidates = [Isolation.PID_NAMESPACE] if os.geteuid() == 0 else []
    for candidate in (*candidates, Isolation.PID_NAMESPACE_USER, Isolation.PARENT_DEATH):
        if await _works(PREFIXES[candidate]):
            return candidate
    return Isolation.NONE


async def _works(prefix: tuple[str, ...]) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            *resolved(prefix),
            shutil.which("true") or "true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(5.0):
            return await process.wait() == 0
    except TimeoutError:
        process.kill()
        return False


def resolved(prefix: tuple[str, ...]) -> tuple[str, ...]:
    """The prefix with absolute paths, so that the child's PATH cannot choose these programs."""
    return tuple((shutil.which(word) or word) if word in ("setpriv", "unshare") else word for word in prefix)


def prepare_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Make `loop` watch children by pidfd. Call it in the loop's thread before the first spawn.

    Python 3.11 would use one thread per child, and its PidfdChildWatcher works only with an attached loop. From 3.12
    this is the default.
    """
    if sys.version_info >= (3, 12) or not hasattr(os, "pidfd_open"):
        return
    watcher = asyncio.PidfdChildWatcher()
    watcher.attach_loop(loop)
    asyncio.set_child_watcher(watcher)

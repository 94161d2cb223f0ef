"""Reads and writes files in a folder where package code ran: follows no links, and reads no more than fits."""

import os
import stat
from pathlib import Path

from sessions.host import trees

#: files next to a folder with what is known about it
DIGEST, INTERPRETER = "installed", "python"
MOST_BYTES = 32 * 1024 * 1024


def read(path: Path) -> str:
    """Raises OSError, also if it is not a regular file or is too large."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            raise OSError(f"{path.name} is not a plain file, or is too large")
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def write(path: Path, text: str) -> None:
    """Write a new file in place of whatever is there. Raises OSError."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        owner = path.parent.stat()
        if owner.st_uid != os.geteuid():  # the server's user, who runs the package manager
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(text)


def beside(folder: Path, what: str) -> Path:
    """The path of a file about a folder, where package code cannot write."""
    return folder.with_name(f"{folder.name}.{what}")


def remove(folder: Path) -> None:
    for what in (DIGEST, INTERPRETER):
        beside(folder, what).unlink(missing_ok=True)
    trees.remove(folder)

"""Folders in which servers write: nested as deep as they like, with links, and without rights that they took away. They
are walked by descriptors, a few at a time, because paths, recursion and descriptors of all levels have an end."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(name: str | Path, at: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, in which its owner may do everything from now on. Raises OSError."""
    try:
        folder = os.open(name, _FLAGS, dir_fd=at)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=at)
        folder = os.open(name, _FLAGS, dir_fd=at)
    try:
        if os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):  # another user's: what is done in it says what is refused
                os.fchmod(folder, stat.S_IRWXU)
        yield folder
    finally:
        os.close(folder)


def remove(folder: Path) -> list[str]:
    """Returns what could not be removed. Each folder is moved to the top before it is emptied."""
    left: list[str] = []
    fresh = (f"{prefix}-{number}" for prefix in (uuid4().hex,) for number in count())

    def emptied(inner: int, top: int) -> list[str]:
        """The names at the top of the folders that were in it."""
        with os.scandir(inner) as entries:
            found = list(entries)
        folders = []
        for entry in found:
            with _noting(left, entry.name):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=inner)
                else:
                    folders.append(entry.name if inner == top else _moved(entry.name, inner, top, next(fresh)))
        return folders

    with _noting(left, str(folder)):
        with opened(folder) as top:
            todo = emptied(top, top)
            while todo:
                name = todo.pop()
                with _noting(left, name):
                    with opened(name, top) as inner:
                        todo += emptied(inner, top)
                    os.rmdir(name, dir_fd=top)
        folder.rmdir()
    return left


@contextmanager
def _noting(left: list[str], name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass  # removed meanwhile
    except OSError:
        left.append(name)


def _moved(name: str, inner: int, top: int, new: str) -> str:
    try:
        os.rename(name, new, src_dir_fd=inner, dst_dir_fd=top)
    except PermissionError:  # the right to write in it is needed, too
        with opened(name, inner):
            os.rename(name, new, src_dir_fd=inner, dst_dir_fd=top)
    return new

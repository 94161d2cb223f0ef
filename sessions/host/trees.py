"""Walks folders that servers write to: nested arbitrarily deep, with links, and with permissions removed. They are
walked by descriptor, a few at a time, because path length, recursion depth and the number of descriptors are
limited."""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from uuid import uuid4

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = stat.S_IRUSR | stat.S_IXUSR


def states(folder: str | Path) -> Iterator[os.stat_result]:
    """The state of everything below a folder, except what disappears meanwhile and what our user may not read. Raises
    OSError for the folder itself."""
    with _opened(folder, None, _READ) as top:
        here = os.dup(top)
        try:
            levels = [((yield from _listed(here)), _identity(here))]
            while levels:
                names, _ = levels[-1]
                if names:
                    with suppress(OSError):
                        here = _instead(here, _open(names.pop(), here, _READ))
                        levels.append(((yield from _listed(here)), _identity(here)))
                    continue
                levels.pop()
                if levels:
                    with suppress(OSError):
                        here = _instead(here, os.open("..", _FLAGS, dir_fd=here))
                    if _identity(here) != levels[-1][1]:  # a folder was moved meanwhile
                        here = _instead(here, os.dup(top))
                        del levels[1:]
        finally:
            os.close(here)


def _listed(folder: int) -> Generator[os.stat_result, None, list[str]]:
    """Return the names of the folders in it."""
    folders = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                yield entry.stat(follow_symlinks=False)
    return folders


def _identity(folder: int) -> tuple[int, int]:
    state = os.fstat(folder)
    return state.st_dev, state.st_ino


def _instead(before: int, now: int) -> int:
    os.close(before)
    return now


def remove(folder: Path) -> list[str]:
    """Remove a folder; return what could not be removed. Each subfolder is moved to the top before it is emptied."""
    left: list[str] = []
    fresh = (f"{prefix}-{number}" for prefix in (uuid4().hex,) for number in count())

    def emptied(inner: int, top: int) -> list[str]:
        """Empty a folder; return the names that its subfolders now have at the top."""
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
        with _opened(folder, None, stat.S_IRWXU) as top:
            todo = emptied(top, top)
            while todo:
                name = todo.pop()
                with _noting(left, name):
                    with _opened(name, top, stat.S_IRWXU) as inner:
                        todo += emptied(inner, top)
                    os.rmdir(name, dir_fd=top)
        folder.rmdir()
    return left


@contextmanager
def _opened(name: str | Path, at: int | None, rights: int) -> Iterator[int]:
    folder = _open(name, at, rights)
    try:
        yield folder
    finally:
        os.close(folder)


def _open(name: str | Path, at: int | None, rights: int) -> int:
    """Return a descriptor of a folder. If we own it, the owner gets these permissions back. Raises OSError."""
    try:
        folder = os.open(name, _FLAGS, dir_fd=at)
    except PermissionError:
        folder = _open_closed(name, at, rights)
    mode = os.fstat(folder).st_mode
    if mode & rights != rights and os.geteuid():  # root needs none
        with suppress(PermissionError):  # another user's: operations in it will report what is refused
            os.fchmod(folder, stat.S_IMODE(mode) | rights)
    return folder


def _open_closed(name: str | Path, at: int | None, rights: int) -> int:
    """The same for a folder without permissions. A running server may swap it for a link at any moment, so its name is
    never used twice."""
    if not hasattr(os, "O_PATH"):
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        os.chmod(name, stat.S_IMODE(mode) | rights, dir_fd=at, follow_symlinks=False)
        return os.open(name, _FLAGS, dir_fd=at)
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        itself = f"/proc/self/fd/{found}"
        os.chmod(itself, stat.S_IMODE(os.fstat(found).st_mode) | rights)
        return os.open(itself, _FLAGS & ~os.O_NOFOLLOW)
    finally:
        os.close(found)


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
    except PermissionError:  # write permission on the folder itself is needed, too
        with _opened(name, inner, stat.S_IRWXU):
            os.rename(name, new, src_dir_fd=inner, dst_dir_fd=top)
    return new

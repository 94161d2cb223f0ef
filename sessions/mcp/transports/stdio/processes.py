"""Access to a process that waits in a system call: its memory, sockets and paths."""

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)
#: x86-64 and arm64 agree on these
_PIDFD_OPEN, _PIDFD_GETFD, _OPENAT2 = 434, 438, 437
_SETRESUID, _SETRESGID, _UTIMENSAT = {"x86_64": (117, 119, 280), "aarch64": (147, 149, 88)}.get(
    os.uname().machine, (0, 0, 0)
)
#: rounds of killing, and seconds between them
_PASSES: Final = 50
_PAUSE: Final = 0.01
_NO_MAGIC: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_IN_ROOT: Final = 0x10


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Caller:
    def __init__(self, process: int, pidfd: int, uid: int | None) -> None:
        self._process, self._pidfd, self._uid = process, pidfd, uid

    def memory(self, address: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        ours, theirs = _Piece(ctypes.addressof(buffer), size), _Piece(address, size)
        read = _checked(
            _libc.process_vm_readv(self._process, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, ctypes.c_ulong(0))
        )
        return buffer.raw[:read]

    def socket(self, descriptor: int) -> socket.socket:
        """A duplicate: both share one open socket."""
        return socket.socket(fileno=_checked(_libc.syscall(_PIDFD_GETFD, self._pidfd, descriptor, 0)))

    def text(self, address: int, most: int = 4096) -> bytes:
        """Up to the first zero byte, read page by page: the next page may be out of bounds."""
        found = b""
        while len(found) < most:
            part = self.memory(address + len(found), 4096 - (address + len(found)) % 4096)
            head, end, _ = part.partition(b"\0")
            found += head
            if end or not part:
                break
        return found

    def directory(self, descriptor: int | None = None) -> str:
        with acting_as(self._uid):
            return os.readlink(f"/proc/{self._process}/{'cwd' if descriptor is None else f'fd/{descriptor}'}")

    @contextlib.contextmanager
    def path(self, path: str, *, links: bool = False, follow: bool = True) -> Iterator[int]:
        """An O_PATH descriptor of a path as the process sees it. Passes through symbolic links only with `links`.
        Without `follow`, opens a final link itself."""
        with acting_as(self._uid):
            root = os.open(f"/proc/{self._process}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
            how = struct.pack("QQQ", flags, 0, _IN_ROOT | (_NO_MAGIC if links else _NO_SYMLINKS))
            with acting_as(self._uid):
                found = _checked(_libc.syscall(_OPENAT2, root, os.fsencode(path), how, ctypes.c_size_t(len(how))))
        finally:
            os.close(root)
        try:
            yield found
        finally:
            os.close(found)


@contextlib.contextmanager
def opened(thread: int, uid: int | None) -> Iterator[Caller]:
    """The process of a thread. OSError if it is gone or out of reach. `uid`: its user, if that is not ours."""
    process = _process_of(thread)
    pidfd = _checked(_libc.syscall(_PIDFD_OPEN, process, 0))
    try:
        with _as_user(uid):
            yield Caller(process, pidfd, uid)
    finally:
        os.close(pidfd)


def set_times(descriptor: int, times: bytes | None) -> None:
    """Set the times, in utimensat's format, of the file behind an O_PATH descriptor. OSError."""
    path = f"/proc/self/fd/{descriptor}".encode()
    _checked(_libc.syscall(_UTIMENSAT, -100, path, times, 0))


class User:
    """A user that only one server has, which identifies its processes wherever they are. A package manager or a newer
    version of the server may run at the same time, even under another worker: only the first to enter and the last to
    leave end leftover processes. `folder`: a folder of ours, the same for all of them. These functions block."""

    def __init__(self, uid: int, folder: str) -> None:
        self._uid = uid
        self._one = threading.Lock()  # a cancelled start may leave while its thread is still entering
        self._folder: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def enter(self) -> None:
        with self._one:
            if self._folder is not None:
                self._end_rest(self._folder)
                fcntl.flock(self._folder, fcntl.LOCK_SH)

    def leave(self) -> None:
        with self._one:
            folder, self._folder = self._folder, None
            if folder is not None:
                try:
                    self._end_rest(folder)
                finally:
                    os.close(folder)

    def _end_rest(self, folder: int) -> None:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # not alone
        _end_all(self._uid)


def _end_all(uid: int) -> None:
    """Kill every process of a user, until none is left to start another."""
    for _ in range(_PASSES):
        found = [int(name) for name in os.listdir("/proc") if name.isdecimal() and _is_of(name, uid)]
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
        time.sleep(_PAUSE)


def _is_of(process: str, uid: int) -> bool:
    """Determined from its status: root owns the folder if a process forbids dumps of itself."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8", errors="replace") as file:
            facts = dict(line.split(":", 1) for line in file if line.startswith(("State:", "Uid:")))
    except OSError:
        return False  # it ended
    return str(uid) in facts.get("Uid", "").split() and facts.get("State", "").strip()[:1] not in ("Z", "X")


def _process_of(thread: int) -> int:
    with open(f"/proc/{thread}/status", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    raise ProcessLookupError(thread)


@contextlib.contextmanager
def _as_user(uid: int | None) -> Iterator[None]:
    """Take on the real user of the process, which is what the kernel compares, for this thread only. A container's root
    usually lacks the capability to look into processes of other users (CAP_SYS_PTRACE)."""
    with _changed(uid, real=True):
        yield


@contextlib.contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
    """Act with the rights of the process, for this thread only: those of its user, and of none of our groups."""
    with _changed(uid, real=False):
        yield


@contextlib.contextmanager
def _changed(uid: int | None, *, real: bool) -> Iterator[None]:
    if not uid:
        yield
        return
    keep = ctypes.c_long(-1)
    first = (uid, keep, keep) if real else (keep, uid, keep)
    last = (0, keep, keep) if real else (keep, 0, keep)
    _checked(_libc.syscall(_SETRESGID, *first))
    try:
        _checked(_libc.syscall(_SETRESUID, *first))
    except OSError:
        _checked(_libc.syscall(_SETRESGID, *last))
        raise
    try:
        yield
    finally:
        _checked(_libc.syscall(_SETRESUID, *last))
        _checked(_libc.syscall(_SETRESGID, *last))

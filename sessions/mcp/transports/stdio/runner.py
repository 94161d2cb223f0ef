"""Confines this process, then becomes the server: the last program before a stdio server's command.

It runs in an interpreter of its own (`confinement.RUNNER`), uses only the standard library and imports as little as
possible, because each start pays for it. Its job arrives on a socket (argument 1) and never in its own environment or
arguments: those would be read by the programs that run before the confinement is in place, some of them as root. The
socket carries back one message: the step that failed, or `ok` with the seccomp listener and a pipe that closes when the
server runs.

If neither a PID namespace nor a user of its own identifies what the server starts, one such process for each worker
(`run_zygote`) forks a keeper for each server, and the server is a child of its keeper: see `run_keeper`. In a
container, the keeper is the first process (`run_container_init`).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C module under `signal`
import _socket
import ctypes
import marshal
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing`, `json`, `signal` and `socket` would double the time of a start
    from typing import Any

X86, ARM = "x86_64", "aarch64"
_COLUMN = {X86: 0, ARM: 1}
#: (x86-64, arm64) numbers; None where the architecture has no such call
CALLS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "connect": (42, 203), "sendto": (44, 206), "sendmsg": (46, 211), "socketpair": (53, 199),
    "sendmmsg": (307, 269), "ioctl": (16, 29), "clone": (56, 220), "clone3": (435, 435), "seccomp": (317, 277),
    "listen": (50, 201),
    "capget": (125, 90), "capset": (126, 91), "pivot_root": (155, 41), "open_tree": (428, 428), "move_mount": (429, 429),
    "mount_setattr": (442, 442), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "fchmod": (91, 52), "mknod": (133, None), "mknodat": (259, 33), "open": (2, None), "creat": (85, None),
    "openat": (257, 56), "openat2": (437, 437), "utimensat": (280, 88), "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}  # fmt: skip
#: refused with EPERM: other processes' memory, keys, kernel, mounts, namespaces, handles that skip path checks
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "unshare": (272, 97),
    "setns": (308, 268), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161),
    "setdomainname": (171, 162), "syslog": (103, 116), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "iopl": (172, None),
    "ioperm": (173, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18), "modify_ldt": (154, None),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "process_mrelease": (448, 448),
    "file_setattr": (469, 469),
}  # fmt: skip
#: refused as if the kernel had none of them. The first allocates memory that no limit counts; the others pass arguments
#: in memory, which the filter cannot see, and libraries fall back to calls that it can judge
ABSENT: dict[str, tuple[int | None, int | None]] = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "fchmodat2": (452, 452), "openat2": (437, 437),
    "clone3": (435, 435),
}  # fmt: skip
#: shared memory and queues of System V and POSIX outlive their processes and are visible to the whole machine
SHARED_IPC: dict[str, tuple[int | None, int | None]] = {
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
}  # fmt: skip
#: changes to files by path that Landlock does not check: refused where other users' files are visible
FILE_CHANGES: dict[str, tuple[int | None, int | None]] = {
    "chown": (92, None), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "setxattrat": (463, 463), "removexattrat": (466, 466),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
}  # fmt: skip
#: calls that change another process of the same user, named by the first argument; 0 is the caller
OTHERS: dict[str, tuple[int | None, int | None]] = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip
_ARCHITECTURES = {X86: 0xC000003E, ARM: 0xC00000B7}
_X32_BIT = 0x40000000
EPERM, EACCES, ENOSYS, EAFNOSUPPORT, EOPNOTSUPP = 1, 13, 38, 97, 95
_ALLOW, _NOTIFY, _KILL, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050000
_NEW_NAMESPACES, _NEW_IPC = 0x7E020000, 0x08000000
_MSG_FASTOPEN = 0x20000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
#: set-user-ID and set-group-ID; flags with which `open` creates a file
_SPECIAL_MODES, _CREATES = 0o6000, 0x40 | 0x400000
_NEW_LISTENER, _WAIT_KILLABLE = 8, 32

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 24, 38, 47
PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
_MAY_KILL, _POLLIN = 1 << 5, 1
_MS_BIND, _MS_REC, _MS_RDONLY, _MS_REMOUNT, _MNT_DETACH = 4096, 16384, 1, 32, 2
_MS_NOSUID, _MS_NODEV = 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


class StepFailed(Exception):
    """`args`: a description of the step, and an errno."""


def checked(step: str, result: int) -> int:
    if result < 0:
        raise StepFailed(step, ctypes.get_errno())
    return result


def call(name: str, *arguments: Any) -> int:
    number = CALLS[name][_COLUMN[os.uname().machine]]
    return int(_libc.syscall(ctypes.c_long(number or -1), *arguments))


def prctl(option: int, *values: int) -> int:
    padded = [*values, 0, 0, 0, 0][:4]
    return int(_libc.prctl(option, *(ctypes.c_ulong(value) for value in padded)))


# --- seccomp ---------------------------------------------------------------------------------------------------------
_LOAD, _JEQ, _JGE, _JSET, _AND, _RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
Code = list[tuple[int, int, int, int]]


def _ret(value: int) -> Code:
    return [(_RET, 0, 0, value)]


def _arg(index: int) -> Code:
    return [(_LOAD, 0, 0, 16 + 8 * index)]


def _arg_high(index: int) -> Code:
    return [(_LOAD, 0, 0, 20 + 8 * index)]


def _when(number: int | None, body: Code) -> Code:
    """`body`, which always returns, for one system call."""
    return [] if number is None else [(_JEQ, 0, len(body), number), *body]


def _if_equal(value: int, body: Code) -> Code:
    return [(_JEQ, 0, len(body), value), *body]


def _if_not(value: int, body: Code) -> Code:
    return [(_JEQ, len(body), 0, value), *body]


def _if_set(bits: int, body: Code) -> Code:
    return [(_JSET, 0, len(body), bits), *body]


def filter_code(machine: str, *, modes: bool = False, others: bool = False, ipc: bool = False) -> bytes:
    """The seccomp program. Sockets: TCP, UNIX streams, and routing netlink (for the list of interfaces). Without
    datagram sockets no message can carry an address of its own, so `connect` is the only way to reach anything.
    `modes`: other users' files are visible, and Landlock does not protect their modes, times and attributes. `others`:
    processes of our user are visible too. `ipc`: the server has its own shared memory and queues."""
    column = _COLUMN[machine]

    def number(name: str) -> int | None:
        return CALLS[name][column]

    refuse, allow, notify, absent = _ret(_ERRNO | EPERM), _ret(_ALLOW), _ret(_NOTIFY), _ret(_ERRNO | ENOSYS)
    stream_types = [*_arg(1), (_AND, 0, 0, 0xF)]
    unix = [*stream_types, *_if_equal(1, allow), *_if_equal(5, allow), *_ret(_ERRNO | EACCES)]
    tcp = [
        *stream_types,
        *_if_equal(1, [*_arg(2), *_if_equal(0, allow), *_if_equal(6, allow), *_ret(_ERRNO | EACCES)]),
        *_ret(_ERRNO | EACCES),
    ]
    netlink = [*_arg(2), *_if_equal(0, allow), *_ret(_ERRNO | EACCES)]
    sockets = [
        *_arg(0),
        *_if_equal(1, unix),
        *_if_equal(2, tcp),
        *_if_equal(10, tcp),
        *_if_equal(16, netlink),
        *_ret(_ERRNO | EAFNOSUPPORT),
    ]

    def plain_mode(index: int, then: Code) -> Code:
        """No set-user-ID: in a granted folder the file would belong to the folder's owner."""
        return [*_arg(index), *_if_set(_SPECIAL_MODES, refuse), *then]

    def creating(flags: int, mode: int) -> Code:
        return [*_arg(flags), *_if_set(_CREATES, plain_mode(mode, allow)), *allow]

    judged = notify if modes else allow
    with_path = [*_arg(1), *_if_not(0, judged), *_arg_high(1), *_if_not(0, judged), *allow]
    of_itself = [*_arg(0), *_if_equal(0, allow), *refuse]

    def fast_open(index: int) -> Code:
        return [*_arg(index), *_if_set(_MSG_FASTOPEN, _ret(_ERRNO | EOPNOTSUPP)), *allow]

    code: Code = [
        (_LOAD, 0, 0, 4),
        (_JEQ, 1, 0, _ARCHITECTURES[machine]),
        *_ret(_KILL),
        (_LOAD, 0, 0, 0),
        (_JGE, 0, 1, _X32_BIT),
        *refuse,
        *_when(number("connect"), notify),
        *_when(number("listen"), notify),  # Landlock knows ports, but not listening without choosing one
        *_when(number("chmod"), plain_mode(1, judged)),
        *_when(number("fchmodat"), plain_mode(2, judged)),
        *_when(number("fchmod"), plain_mode(1, allow)),
        *_when(number("mknod"), plain_mode(1, allow)),
        *_when(number("mknodat"), plain_mode(2, allow)),
        *_when(number("open"), creating(1, 2)),
        *_when(number("openat"), creating(2, 3)),
        *_when(number("creat"), plain_mode(1, allow)),
        *_when(number("utimensat"), with_path),
        *_when(number("socket"), sockets),
        *_when(number("socketpair"), unix),
        *_when(number("sendto"), fast_open(3)),
        *_when(number("sendmsg"), fast_open(2)),
        *_when(number("sendmmsg"), fast_open(3)),
        *_when(number("ioctl"), [*_arg(1), *_if_equal(_TIOCSTI, refuse), *_if_equal(_TIOCLINUX, refuse), *allow]),
        *_when(number("clone"), [*_arg(0), *_if_set(_NEW_NAMESPACES, refuse), *allow]),
        *_when(number("seccomp"), [*_arg(1), *_if_set(_NEW_LISTENER, refuse), *allow]),
    ]
    refused = REFUSED | (FILE_CHANGES if modes else {}) | ({} if ipc else SHARED_IPC)
    for numbers in refused.values():
        code += _when(numbers[column], refuse)
    for numbers in ABSENT.values():
        code += _when(numbers[column], absent)
    if others:
        for numbers in OTHERS.values():
            code += _when(numbers[column], of_itself)
        # Their first argument says what kind of id the second is: 0 and 1 mean processes.
        code += _when(
            number("setpriority"), [*_arg(0), *_if_equal(0, [*_arg(1), *_if_equal(0, allow), *refuse]), *refuse]
        )
        code += _when(
            number("ioprio_set"), [*_arg(0), *_if_equal(1, [*_arg(1), *_if_equal(0, allow), *refuse]), *refuse]
        )
    code += allow
    return b"".join(struct.pack("HBBI", *line) for line in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install_filter(*, modes: bool, others: bool, ipc: bool) -> int:
    """The listener of the calls that connect_gate.Gate answers."""
    raw = filter_code(os.uname().machine, modes=modes, others=others, ipc=ipc)
    code = ctypes.create_string_buffer(raw, len(raw))
    program = _Program(len(raw) // 8, ctypes.cast(code, ctypes.c_void_p))
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        result = call("seccomp", 1, flags, ctypes.byref(program))
        if result >= 0:
            return result
    raise StepFailed("filtering system calls (seccomp)", ctypes.get_errno())


# --- Landlock --------------------------------------------------------------------------------------------------------
_READ, _WRITE_FILE, _EXECUTE, _LIST = 1 << 2, 1 << 1, 1 << 0, 1 << 3
#: number of file rights that each version of the interface knows
_RIGHTS = (13, 14, 15, 15, 16)
_ONLY_DIRECTORIES = 0x3FF8
_MAKE_DEVICES = (1 << 6) | (1 << 11)


def landlock_version() -> int:
    """0 where there is none."""
    return max(0, call("landlock_create_ruleset", None, ctypes.c_size_t(0), 1))


def restrict(read: list[str], write: list[str], devices: list[str], listed: list[str]) -> None:
    """Landlock: these paths and what is below them, no TCP of its own (see network.py), signals and abstract sockets
    only among its own processes."""
    version = landlock_version()
    if not version:
        raise StepFailed("restricting files (Landlock)", ctypes.get_errno())
    rights = (1 << _RIGHTS[min(version, 5) - 1]) - 1
    attributes = struct.pack("QQQ", rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = checked(
        "restricting files (Landlock)", call("landlock_create_ruleset", attributes, ctypes.c_size_t(size), 0)
    )
    look = _READ | _EXECUTE | _LIST
    for paths, allowed in (
        (read, look),
        (write, rights & ~_MAKE_DEVICES),
        (listed, _LIST),
        (devices, _READ | _WRITE_FILE | rights & (1 << 15)),
    ):
        for path in paths:
            _add_rule(ruleset, path, allowed)
    checked("restricting files (Landlock)", call("landlock_restrict_self", ruleset, 0))
    os.close(ruleset)


def opened(path: str) -> int:
    """An O_PATH descriptor, opened without following links: the path was resolved when it was checked, so a link found
    now was created since. Links in /proc depend on who reads them. Raises OSError."""
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, 0 if path.startswith("/proc/") else 4)
    target = call("openat2", -100, path.encode("utf-8", "surrogateescape"), how, ctypes.c_size_t(len(how)))
    if target < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return target


def _add_rule(ruleset: int, path: str, allowed: int) -> None:
    try:
        target = opened(path)
    except OSError:
        return  # what is not there need not be allowed
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            allowed &= ~_ONLY_DIRECTORIES
        rule = struct.pack("=Qi", allowed, target)
        checked(f"allowing {path} (Landlock)", call("landlock_add_rule", ruleset, 1, rule, 0))
    finally:
        os.close(target)


# --- the view of the file system -------------------------------------------------------------------------------------
class _MountAttributes(ctypes.Structure):
    _fields_ = (("set", ctypes.c_uint64), ("clear", ctypes.c_uint64), ("propagation", ctypes.c_uint64), ("userns", ctypes.c_uint64))  # fmt: skip


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    names = (name.encode("utf-8", "surrogateescape") for name in (source, target))
    result = _libc.mount(*names, kind.encode(), ctypes.c_ulong(flags), data.encode())
    checked(f"mounting {source} at {target}", result)


class View:
    """A file system that holds only what the server may touch, under the same paths. Needs a mount namespace."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._root = job["mount_point"]
        #: descriptors of user namespaces by owner and group
        self._mappings: dict[tuple[int, int], int] = {}

    def build(self) -> None:
        checked("separating shared memory", _libc.unshare(_NEW_IPC))
        mount("tmpfs", self._root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=16m")
        os.makedirs(self._root + "/dev/shm")  # noqa: S108  # inside the new root
        mount("tmpfs", self._root + "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=256m")  # noqa: S108  # inside the new root
        for path, text in self._job["made_files"].items():
            self._make_file(path, text)
        for link, target in self._job["links"].items():
            os.makedirs(os.path.dirname(self._root + link), exist_ok=True)
            os.symlink(target, self._root + link)
        self._bind(self._job["tmp"], "/tmp", writable=True)  # noqa: S108  # it gets one of its own there
        for path, source, writable in self._job["mounts"]:
            self._bind(source, path, writable=writable)
        for path in self._job["devices"]:
            self._bind(path, path, writable=True)
        os.makedirs(self._root + "/proc", exist_ok=True)
        mount("/proc", self._root + "/proc", "", _MS_BIND | _MS_REC)
        for descriptor in self._mappings.values():
            if descriptor >= 0:
                os.close(descriptor)
        os.chdir(self._root)
        checked("entering the view", call("pivot_root", b".", b"."))
        checked("leaving the old root", _libc.umount2(b".", _MNT_DETACH))
        os.chdir("/")

    def _make_file(self, path: str, text: str) -> None:
        os.makedirs(os.path.dirname(self._root + path), exist_ok=True)
        with open(self._root + path, "w") as file:
            file.write(text)

    def _bind(self, source: str, at: str, *, writable: bool) -> None:
        if at in self._job["made_files"] or os.path.islink(self._root + at):
            return
        tree = opened(source)
        try:
            target = self._made(at, directory=stat.S_ISDIR(os.fstat(tree).st_mode))
            mapped = source in self._job["owned_by_others"] and self._bind_mapped(tree, target, writable=writable)
            if not mapped:
                mount(f"/proc/self/fd/{tree}", f"/proc/self/fd/{target}", "", _MS_BIND | _MS_REC)
            os.close(target)
        finally:
            os.close(tree)
        if not writable and not mapped:
            self._read_only(at)

    def _made(self, at: str, *, directory: bool) -> int:
        """An O_PATH descriptor of the mount point, created if needed. Follows no link: where folders of the server are
        mounted already, a link in them would lead out of the view."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        *parents, last = at.strip("/").split("/")
        folder = os.open(self._root, flags | os.O_DIRECTORY)
        for part in (*parents, last) if directory else parents:
            try:
                os.mkdir(part, 0o755, dir_fd=folder)
            except OSError:
                pass  # it is there, or the next line says what is wrong
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        if directory:
            return folder
        try:
            os.close(os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))
        except OSError:
            pass  # as above
        file = os.open(last, flags, dir_fd=folder)
        os.close(folder)
        if stat.S_ISLNK(os.fstat(file).st_mode):
            raise StepFailed(f"mounting on {at}, which is a link", 40)
        return file

    def _read_only(self, at: str) -> None:
        """Including everything below. On kernels before 5.12 this is left to Landlock."""
        attributes = _MountAttributes(set=1)
        mounted = opened(self._root + at)
        call("mount_setattr", mounted, b"", 0x8000 | 0x1000, ctypes.byref(attributes), ctypes.c_size_t(32))
        os.close(mounted)

    def _bind_mapped(self, source: int, target: int, *, writable: bool) -> bool:
        """Bind a folder so that the server's user stands for its owner there. False where the kernel or the file
        system cannot."""
        tree = mapped_tree(source, self._job["uid"], self._mappings, writable=writable)
        if tree < 0:
            return False
        moved = call("move_mount", tree, b"", target, b"", 4 | 0x40)
        os.close(tree)
        return moved >= 0


def mapped_tree(source: int, uid: int, mappings: dict[tuple[int, int], int], *, writable: bool) -> int:
    """A mount of a folder, not yet placed, in which this user stands for its owner; -1 where the kernel or the file system
    cannot."""
    owner = os.fstat(source)
    tree = call("open_tree", source, b"", 1 | os.O_CLOEXEC | 0x8000 | 0x1000)
    if tree < 0:
        return -1
    key = owner.st_uid, owner.st_gid
    if key not in mappings:
        mappings[key] = _mapping((key[0], uid), (key[1], uid))
    userns = mappings[key]
    attributes = _MountAttributes(set=0x100000 | (0 if writable else 1), userns=max(userns, 0))
    if (
        userns < 0
        or call("mount_setattr", tree, b"", 0x1000 | 0x8000, ctypes.byref(attributes), ctypes.c_size_t(32)) < 0
    ):
        os.close(tree)
        return -1
    return tree


def mount_granted_folders(process: int, uid: int) -> None:
    """Mounts folders of other users in the mount namespace of a container, as `View` does: the server's user stands for
    their owners. Runs as root, outside the container. The paths arrive on stdin, outer ones first, each with its kind,
    whether it is writable, and whether it belongs to another user."""
    mappings: dict[tuple[int, int], int] = {}
    trees: list[tuple[str, int]] = []
    for path, source, writable, of_others in marshal.loads(sys.stdin.buffer.read()):  # noqa: S302  # from the worker
        opened_source = opened(source)
        tree = mapped_tree(opened_source, uid, mappings, writable=writable) if of_others else -1
        if tree < 0:
            if not any(path.startswith(outer.rstrip("/") + "/") for outer, _ in trees):
                continue  # it is there already
            tree = checked(
                f"mounting {source}", call("open_tree", opened_source, b"", 1 | os.O_CLOEXEC | 0x8000 | 0x1000)
            )
            attributes = _MountAttributes(set=0 if writable else 1)
            call("mount_setattr", tree, b"", 0x9000, ctypes.byref(attributes), ctypes.c_size_t(32))
        trees.append((path, tree))
    namespace = os.open(f"/proc/{process}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    checked("entering the container", _libc.setns(namespace, 0x20000))
    for path, tree in trees:
        checked(f"mounting on {path}", call("move_mount", tree, b"", opened(path), b"", 4 | 0x40))
    os._exit(0)


def _mapping(users: tuple[int, int], groups: tuple[int, int]) -> int:
    """A descriptor of a user namespace that maps one user and one group; -1 if none can be created."""
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        done = _libc.unshare(0x10000000)
        os.write(outside, b"1" if done == 0 else b"0")
        _signal.pause()
    try:
        if os.read(inside, 1) != b"1":
            return -1
        for name, (first, second) in (("uid_map", users), ("gid_map", groups)):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"{first} {second} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        os.close(inside)
        os.close(outside)
        os.kill(child, _signal.SIGKILL)
        os.waitpid(child, 0)


# --- user, capabilities, limits --------------------------------------------------------------------------------------
def become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def drop_capabilities() -> None:
    for capability in range(64):
        if prctl(PR_CAPBSET_DROP, capability) < 0:
            break
    prctl(PR_CAP_AMBIENT, 4)


def set_capabilities(kept: int = 0) -> None:
    """Keep only the capabilities in this mask that the process has."""
    header, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    checked("reading capabilities", call("capget", header, sets))
    permitted = struct.unpack("6I", sets.raw)[1] & kept
    checked("dropping capabilities", call("capset", header, struct.pack("6I", permitted, permitted, 0, 0, 0, 0)))


def limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def close_others(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the listing itself


def die_with_parent(alive: int) -> None:
    """Changing the user cleared the signal. `alive` closes with the parent, so a death in between is noticed too."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if not lives(alive):
        os._exit(1)


def lives(alive: int) -> bool:
    os.set_blocking(alive, False)
    try:
        return os.read(alive, 1) != b""
    except BlockingIOError:
        return True


# --- the keeper ------------------------------------------------------------------------------------------------------
#: orders on a keeper socket; its end means END
TERMINATE, END = b"t", b"e"


def run_zygote(orders: _socket.socket) -> tuple[int, int]:
    """Forks each server of a worker with its keeper, so that they share this process's memory; returns in each server.
    Ends with its worker; the keepers notice that on their own."""
    prctl(PR_SET_DUMPABLE, 0)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # nothing waits for the keepers' exit codes
    while True:
        descriptors = taken(orders)
        if not descriptors:
            os._exit(0)
        if os.fork() == 0:
            orders.close()
            _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
            keeper_socket, *others = descriptors
            return run_keeper(_socket.socket(fileno=keeper_socket), others)
        for descriptor in descriptors:
            os.close(descriptor)


def run_container_init(path: str) -> tuple[int, int]:
    """The first process of a container: the worker listens on the socket and hands over the arguments of `run_keeper`.
    Without a worker, the container ends here."""
    keeper_socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    keeper_socket.connect(path)
    descriptors = taken(keeper_socket)
    if not descriptors:
        os._exit(1)
    return run_keeper(keeper_socket, descriptors)


def taken(connection: _socket.socket) -> list[int]:
    """The descriptors of one message; none when the other side is gone."""
    try:
        data, ancillary, _, _ = connection.recvmsg(1, 4096, _socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return []
    raw = b"".join(part for _, _, part in ancillary)
    return list(struct.unpack(f"{len(raw) // 4}i", raw)) if data else []


def run_keeper(keeper_socket: _socket.socket, descriptors: list[int]) -> tuple[int, int]:
    """Returns in a child of this process, which becomes the server, with its control socket and the pipe that closes
    with its parent. This process stays, unconfined and therefore out of the server's reach, until nothing of the server
    is left.

    As the subreaper, or the first process of a PID namespace, it inherits each process whose parent ends, whatever
    session or group that process made for itself. So when the server has ended, when END arrives or when the worker
    dies, it kills its children until there are none. It knows nothing about the job, and holds none of the server's
    pipes. To the worker it reports the server's exit code, negative for a signal."""
    control, alive, *standard = descriptors
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGCHLD})
    checked("watching over what the server starts", prctl(PR_SET_CHILD_SUBREAPER, 1))
    prctl(PR_SET_DUMPABLE, 0)
    server = os.fork()
    if server == 0:
        keeper_socket.close()
        _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        os.setsid()
        prctl(PR_SET_DUMPABLE, 1)
        prctl(PR_SET_CHILD_SUBREAPER, 0)
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return control, alive
    for descriptor in (0, 1, 2, *descriptors):
        os.close(descriptor)
    set_capabilities(_MAY_KILL)  # as root of a container, it ends processes of another user
    status = watch(server, keeper_socket)
    rest = dict(reap(kill=True))
    if status is None:
        status = rest.get(server, -_signal.SIGKILL)
    try:
        keeper_socket.send(struct.pack("i", status))
    except OSError:
        pass  # the worker is gone
    os._exit(0)


def watch(server: int, keeper_socket: _socket.socket) -> int | None:
    """The server's exit code, negative for a signal; None if it must be terminated."""
    signals = struct.pack("Q120x", 1 << _signal.SIGCHLD - 1)
    ended = checked("watching the server", _libc.signalfd(-1, signals, os.O_CLOEXEC))
    ready = ctypes.create_string_buffer(struct.pack("ihhihh", ended, _POLLIN, 0, keeper_socket.fileno(), _POLLIN, 0))
    try:
        keeper_socket.send(struct.pack("i", os.getpid()))
        while True:
            _libc.poll(ready, ctypes.c_ulong(2), -1)
            if struct.unpack("ihhihh", ready.raw[:16])[2]:
                os.read(ended, 128)
            for pid, status in reap(kill=False):
                if pid == server:  # also when END came because it has ended
                    return status
            if struct.unpack("ihhihh", ready.raw[:16])[5]:
                if keeper_socket.recv(1) != TERMINATE:
                    return None
                terminate(server)
    except ConnectionError:
        return None


def terminate(server: int) -> None:
    try:
        os.killpg(server, _signal.SIGTERM)
    except ProcessLookupError:
        os.kill(server, _signal.SIGTERM)  # it has no group of its own yet; it is not reaped, so the number is its own


def reap(*, kill: bool) -> list[tuple[int, int]]:
    """The children that ended; with `kill`, returns only when no child is left. Only children are killed: their pids
    cannot be reused before they are reaped. Processes that they leave behind become children too."""
    ended: list[tuple[int, int]] = []
    while True:
        for child in children() if kill else ():
            os.kill(child, _signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0 if kill else os.WNOHANG)
            while pid:
                ended.append((pid, os.waitstatus_to_exitcode(status)))
                pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not kill:
            return ended


def children() -> list[int]:
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and parent_of(name) == own]


def parent_of(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


# --- the run ---------------------------------------------------------------------------------------------------------
def received(control: _socket.socket) -> dict[str, Any]:
    """Marshalled by the same interpreter."""
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "big"):
        part = control.recv(1 << 20)
        if not part:
            raise OSError(5, "the worker is gone")
        data += part
    job: dict[str, Any] = marshal.loads(data[8:])  # noqa: S302  # by the worker that started this process
    return job


def confine(job: dict[str, Any], control: int, alive: int) -> int:
    """The listener of the calls that connect_gate.Gate answers."""
    close_others({control, alive})
    if job["view"]:
        mask = os.umask(0o022)
        View(job).build()
        os.umask(mask)
    limit(job["limits"])
    drop_capabilities()
    if job["uid"]:
        become(job["uid"])
    die_with_parent(alive)
    checked("giving up privileges", prctl(PR_SET_NO_NEW_PRIVS, 1))
    set_capabilities()
    try:
        os.chdir(job["cwd"])
    except OSError as problem:
        raise StepFailed(f"entering {job['cwd']}", problem.errno) from None
    if job["landlock"] or (job["landlock_if_there"] and landlock_version()):
        writable = [*job["write"], *(("/tmp", "/dev/shm") if job["own_tmp"] else ())]  # noqa: S108  # its own there
        listed = ["/"] if job["own_tmp"] else []  # it holds nothing else
        restrict([*job["read"], *job["made_files"]], writable, job["devices"], listed)
    return install_filter(modes=job["modes"], others=job["others"], ipc=job["ipc"])


def main(arguments: list[str]) -> None:
    report, step, unused = -1, "reading what to run", -1
    try:
        if arguments[0] == "zygote":
            number, alive = run_zygote(_socket.socket(fileno=int(arguments[1])))
        elif arguments[0] == "container-init":
            number, alive = run_container_init(arguments[1])
        elif arguments[0] == "mount":
            return mount_granted_folders(int(arguments[1]), int(arguments[2]))
        else:
            number, alive, unused = map(int, arguments)
        control = _socket.socket(fileno=number)
        report = number
        job = received(control)
        if unused >= 0:
            os.close(unused)  # the other end of `alive`, which only the parent keeps
        step = "confining the server"
        listener = confine(job, control.fileno(), alive)
        status, own = os.pipe()
        control.sendmsg([b"ok"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("ii", listener, status))])
        for descriptor in (listener, status, alive):
            os.close(descriptor)
        control.close()
        report = own
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        step = "starting the program"
        # By its name where only an image has it.
        os.execvpe(job["program"], [job["program"], *job["arguments"]], job["environment"])  # noqa: S606  # no shell
    except StepFailed as problem:
        _report(report, problem.args[0], problem.args[1])
    except OSError as problem:
        _report(report, step, problem.errno or 0)
    os._exit(126)


def _report(descriptor: int, step: str, number: int) -> None:
    if descriptor < 0:
        sys.stderr.write(f"{step}: {os.strerror(number)}\n")
        return
    try:
        os.write(descriptor, f"{number} {step}".encode())
    except OSError:
        pass  # the worker is gone


if __name__ == "__main__":
    main(sys.argv[1:])

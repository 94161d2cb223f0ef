"""Confines this process, then becomes the server: the last program before a stdio server's command.

It runs in an interpreter of its own (`confinement.RUNNER`), uses only the standard library and imports as little as
possible, because each start pays for it. Its job arrives on a socket (argument 1) and never in its own environment or
arguments: those would be read by the programs that run before the confinement stands, some of them as root. The socket
carries back one message: the step that failed, or `ok` with the seccomp listener and a pipe that closes when the server
runs.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C module under `signal`
import _socket
import ctypes
import marshal
import os
import resource
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
    "capset": (126, 91), "pivot_root": (155, 41), "open_tree": (428, 428), "move_mount": (429, 429),
    "mount_setattr": (442, 442), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452),
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
    "ioperm": (173, None), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
}  # fmt: skip
_ARCHITECTURES = {X86: 0xC000003E, ARM: 0xC00000B7}
_X32_BIT = 0x40000000
EPERM, EACCES, ENOSYS, EAFNOSUPPORT, EOPNOTSUPP = 1, 13, 38, 97, 95
_ALLOW, _NOTIFY, _KILL, _ERRNO = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050000
_NEW_NAMESPACES = 0x7E020000
_MSG_FASTOPEN = 0x20000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_NEW_LISTENER, _WAIT_KILLABLE = 8, 32

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 24, 38, 47
_MS_BIND, _MS_REC, _MS_RDONLY, _MS_REMOUNT, _MNT_DETACH = 4096, 16384, 1, 32, 2
_MS_NOSUID, _MS_NODEV = 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


class StepFailed(Exception):
    """`args`: the step in words, an errno."""


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


def _when(number: int | None, body: Code) -> Code:
    """`body`, which always returns, for one system call."""
    return [] if number is None else [(_JEQ, 0, len(body), number), *body]


def _if_equal(value: int, body: Code) -> Code:
    return [(_JEQ, 0, len(body), value), *body]


def _if_set(bits: int, body: Code) -> Code:
    return [(_JSET, 0, len(body), bits), *body]


def filter_code(machine: str, *, modes: bool, listens: bool) -> bytes:
    """The seccomp program. Sockets: TCP, UNIX streams, and routing netlink (for the list of interfaces). Without
    datagram sockets no message can carry an address of its own, so `connect` is the only way to reach anything. `modes`: changes of file modes are judged
    too, which Landlock does not; `listens`: and listening, where Landlock knows no TCP."""
    column = _COLUMN[machine]

    def number(name: str) -> int | None:
        return CALLS[name][column]

    refuse, allow = _ret(_ERRNO | EPERM), _ret(_ALLOW)
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

    def fast_open(index: int) -> Code:
        return [*_arg(index), *_if_set(_MSG_FASTOPEN, _ret(_ERRNO | EOPNOTSUPP)), *allow]

    code: Code = [
        (_LOAD, 0, 0, 4),
        (_JEQ, 1, 0, _ARCHITECTURES[machine]),
        *_ret(_KILL),
        (_LOAD, 0, 0, 0),
        (_JGE, 0, 1, _X32_BIT),
        *refuse,
        *_when(number("connect"), _ret(_NOTIFY)),
        *_when(number("listen"), _ret(_NOTIFY) if listens else allow),
        *(line for name in ("chmod", "fchmodat") if modes for line in _when(number(name), _ret(_NOTIFY))),
        *_when(number("fchmodat2"), _ret(_ERRNO | ENOSYS)),  # libraries fall back to fchmodat
        *_when(number("socket"), sockets),
        *_when(number("socketpair"), unix),
        *_when(number("sendto"), fast_open(3)),
        *_when(number("sendmsg"), fast_open(2)),
        *_when(number("sendmmsg"), fast_open(3)),
        *_when(number("ioctl"), [*_arg(1), *_if_equal(_TIOCSTI, refuse), *_if_equal(_TIOCLINUX, refuse), *allow]),
        *_when(number("clone"), [*_arg(0), *_if_set(_NEW_NAMESPACES, refuse), *allow]),
        *_when(number("clone3"), _ret(_ERRNO | ENOSYS)),  # its flags lie in memory; libraries fall back to clone
        *_when(number("seccomp"), [*_arg(1), *_if_set(_NEW_LISTENER, refuse), *allow]),
    ]
    for numbers in REFUSED.values():
        code += _when(numbers[column], refuse)
    code += allow
    return b"".join(struct.pack("HBBI", *line) for line in code)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install_filter(*, modes: bool, listens: bool) -> int:
    """The listener of the calls that reach.Gate answers."""
    raw = filter_code(os.uname().machine, modes=modes, listens=listens)
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


def _add_rule(ruleset: int, path: str, allowed: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there need not be allowed
    try:
        if not os.path.isdir(path):
            allowed &= ~_ONLY_DIRECTORIES
        rule = struct.pack("=Qi", allowed, target)
        checked(f"allowing {path} (Landlock)", call("landlock_add_rule", ruleset, 1, rule, 0))
    finally:
        os.close(target)


# --- the view of the file system -------------------------------------------------------------------------------------
class _MountAttributes(ctypes.Structure):
    _fields_ = (("set", ctypes.c_uint64), ("clear", ctypes.c_uint64), ("propagation", ctypes.c_uint64), ("userns", ctypes.c_uint64))  # fmt: skip


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    checked(f"mounting {source} at {target}", result)


class View:
    """A file system that holds only what the server may touch, under the same paths. Needs a mount namespace."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._root = job["mount_point"]
        #: descriptors of user namespaces by owner and group
        self._mappings: dict[tuple[int, int], int] = {}

    def build(self) -> None:
        mount("tmpfs", self._root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=16m")
        os.makedirs(self._root + "/dev/shm")  # noqa: S108  # inside the new root
        mount("tmpfs", self._root + "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=256m")  # noqa: S108
        for path, text in self._job["made_files"].items():
            self._make_file(path, text)
        for link, target in self._job["links"].items():
            os.makedirs(os.path.dirname(self._root + link), exist_ok=True)
            os.symlink(target, self._root + link)
        self._bind(self._job["tmp"], "/tmp", read_only=False)  # noqa: S108  # it gets one of its own there
        for path, writable in self._job["mounts"]:
            self._bind(path, path, read_only=not writable)
        for path in self._job["devices"]:
            self._bind(path, path, read_only=False)
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

    def _bind(self, source: str, at: str, *, read_only: bool) -> None:
        if at in self._job["made_files"] or os.path.islink(self._root + at):
            return
        target = self._root + at
        if os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
        elif not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w"):
                pass
        if source in self._job["owned_by_others"] and self._bind_mapped(source, target):
            return
        mount(source, target, "", _MS_BIND | _MS_REC)
        if read_only:
            self._read_only(target)

    def _read_only(self, target: str) -> None:
        """With everything below. Kernels before 5.12 leave that to Landlock."""
        attributes = _MountAttributes(set=1)
        call("mount_setattr", -100, target.encode(), 0x8000, ctypes.byref(attributes), ctypes.c_size_t(32))

    def _bind_mapped(self, source: str, target: str) -> bool:
        """Bind a folder so that the server's user stands for its owner there. False where the kernel or the file
        system cannot."""
        owner = os.stat(source)
        tree = call("open_tree", -100, source.encode(), 1 | os.O_CLOEXEC | 0x8000)
        if tree < 0:
            return False
        key = owner.st_uid, owner.st_gid
        if key not in self._mappings:
            self._mappings[key] = _mapping((key[0], self._job["uid"]), (key[1], self._job["uid"]))
        userns = self._mappings[key]
        if userns < 0:
            os.close(tree)
            return False
        attributes = _MountAttributes(set=0x100000 | (1 if source not in self._job["write"] else 0), userns=userns)
        mapped = call("mount_setattr", tree, b"", 0x1000 | 0x8000, ctypes.byref(attributes), ctypes.c_size_t(32))
        if mapped >= 0:
            mapped = call("move_mount", tree, b"", -100, target.encode(), 4)
        os.close(tree)
        return mapped >= 0


def _mapping(users: tuple[int, int], groups: tuple[int, int]) -> int:
    """A descriptor of a user namespace that maps one user and one group; -1 if there is none to be had."""
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


def clear_capabilities() -> None:
    header, sets = struct.pack("Ii", 0x20080522, 0), bytes(24)
    checked("dropping capabilities", call("capset", header, sets))


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
    """A change of user cleared the signal. `alive` ends with the parent, so a death in between is seen too."""
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    os.set_blocking(alive, False)
    try:
        if os.read(alive, 1) == b"":
            os._exit(1)
    except BlockingIOError:
        pass


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
    """The listener of the calls that reach.Gate answers."""
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
    clear_capabilities()
    try:
        os.chdir(job["cwd"])
    except OSError as problem:
        raise StepFailed(f"entering {job['cwd']}", problem.errno) from None
    if job["landlock"]:
        writable = [*job["write"], *(("/tmp", "/dev/shm") if job["view"] else ())]  # noqa: S108  # its own there
        listed = ["/"] if job["view"] else []  # it holds nothing else
        restrict([*job["read"], *job["made_files"]], writable, job["devices"], listed)
    return install_filter(modes=job["modes"], listens=not job["landlock"] or landlock_version() < 4)


def main(arguments: list[str]) -> None:
    control = _socket.socket(fileno=int(arguments[0]))
    alive = int(arguments[1])
    report, step = control.fileno(), "reading what to run"
    try:
        job = received(control)
        os.close(int(arguments[2]))  # the other end of `alive`, which only the parent keeps
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
        os.execve(job["program"], [job["program"], *job["arguments"]], job["environment"])  # noqa: S606  # no shell
    except StepFailed as problem:
        _report(report, problem.args[0], problem.args[1])
    except OSError as problem:
        _report(report, step, problem.errno or 0)
    os._exit(126)


def _report(descriptor: int, step: str, number: int) -> None:
    try:
        os.write(descriptor, f"{number} {step}".encode())
    except OSError:
        pass  # the worker is gone


if __name__ == "__main__":
    main(sys.argv[1:])

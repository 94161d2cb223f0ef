"""What a taken-over worker might try to become root or another user. Prints a JSON object: what it got, by attempt.

python -m tests.mcpadmin.escaping DATA_DIR SECRET PROCESS, as root: gives root up as `up` does, and then tries with all the
privileges that `up` and workers keep.
"""

import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from mcpadmin.up import unprivileged

libc = ctypes.CDLL(None, use_errno=True)
MS_BIND, PTRACE_ATTACH, NEW_USER, NEW_MOUNTS = 4096, 16, 0x10000000, 0x20000


def checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def become(uid: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError("refused")


def join(kind: int, path: str) -> None:
    with open(path) as file:
        checked(libc.setns(file.fileno(), kind))


def device(folder: Path) -> None:
    os.mknod(folder / "disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))


def attempts(folder: Path, secret: Path, process: int) -> Iterator[tuple[str, Callable[[], object]]]:
    text = str(secret)
    yield "read a file of root", lambda: secret.read_text()
    yield "write a file of root", lambda: secret.write_text("x")
    yield "take a file of root", lambda: os.chown(secret, 0, 0)
    yield "open a file of root to all", lambda: secret.chmod(0o666)
    yield "remove a file of root", lambda: secret.unlink()
    yield "read the passwords", lambda: Path("/etc/shadow").read_text()
    yield "add to the folder of the system", lambda: Path("/etc/mcpadmin-escaping").touch()
    yield "give a file to the machine's root", lambda: os.chown(folder / "own", 4_294_967_294, 0)
    for uid in (1, 1000, 65_534, 4_294_967_294):
        yield f"become user {uid}", lambda uid=uid: become(uid)  # type: ignore[misc]  # a default binds the loop's value
    yield "join root's group", lambda: os.setgroups([4])
    yield "end a process of root", lambda: os.kill(process, signal.SIGKILL)
    yield "read a process of root", lambda: Path(f"/proc/{process}/environ").read_bytes()
    yield "write into a process of root", lambda: os.close(os.open(f"/proc/{process}/mem", os.O_RDWR))
    yield "attach to a process of root", lambda: checked(libc.ptrace(PTRACE_ATTACH, process, None, None))
    yield "join the machine's users", lambda: join(NEW_USER, "/proc/1/ns/user")
    yield "join the machine's mounts", lambda: join(NEW_MOUNTS, "/proc/1/ns/mnt")
    yield "map more users", lambda: Path("/proc/self/uid_map").write_text("0 0 4294967295\n")
    yield "make a device", lambda: device(folder)
    yield "mount over the system", lambda: checked(libc.mount(text.encode(), b"/etc", None, MS_BIND, None))
    yield "change the kernel", lambda: Path("/proc/sys/kernel/core_pattern").write_text("|/bin/sh")
    yield "load a module", lambda: checked(libc.syscall(175 if os.uname().machine == "x86_64" else 105, None, 0, b""))
    yield "restart the machine", lambda: checked(libc.reboot(0x12345678))  # an invalid command: only the right counts
    yield "name the machine", lambda: checked(libc.sethostname(b"mine", 4))
    yield "set the clock", lambda: checked(libc.settimeofday((ctypes.c_long * 2)(1, 1), None))


def main(data_dir: str, secret: str, process: str) -> None:
    folder = Path(data_dir)
    privileges = unprivileged.drop(folder, "")
    assert privileges.contained, privileges.lines
    (folder / "own").write_text("x")
    got = {}
    for name, attempt in attempts(folder, Path(secret), int(process)):
        got[name] = False
        with contextlib.suppress(OSError):
            attempt()
            got[name] = True
    # The highest that it can make of a program: its own root.
    (folder / "program").write_text("x")
    os.chown(folder / "program", 0, 0)
    (folder / "program").chmod(0o4755)
    become(unprivileged.FIRST_SERVER_USER + 7)  # what it is there for
    print(json.dumps(got))


if __name__ == "__main__":
    main(*sys.argv[1:])

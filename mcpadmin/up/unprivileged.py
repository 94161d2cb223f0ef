"""When started as root, `up` gives up root for good before it starts anything, and keeps only the users for servers.

Each stdio server has a user of its own, and switching to it requires privileges. No root process stays for that, so
nothing can be tricked into doing something as root. While `up` is still root, it creates a user namespace that contains
mcpadmin's own user (as 0), the range of the servers' users and no others, and enters it. `up` and workers have
privileges over exactly these users and their files, processes and mounts: the kernel provides no way from there to any
other user (user_namespaces(7)). Web processes and Valkey drop even these privileges. The namespace belongs to root, so
a process of mcpadmin's user outside it has no power over what is inside.

Standard library only: `up` imports it.
"""

import ctypes
import os
import pwd
import shlex
import signal
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mcpadmin import hardening
from mcpadmin.installation import ROOT
from mcpadmin.up import preflight, valkey
from mcpadmin.up.options import StartProblem

#: the users of stdio servers; sessions/mcp/transports/stdio/tiers.py chooses among those that are mapped
FIRST_SERVER_USER, SERVER_USERS = 1_900_000_000, 100_000_000
ACCOUNT = "mcpadmin"
STAY = "root"
#: files outside the data directory that our own processes read
FILE_VARIABLES = ("MCPADMIN_KEYRING_FILE", "MCPADMIN_CHECKPOINT_KEY_FILE")
#: files that they write outside it, but do not need in order to run
WRITTEN_VARIABLES = ("MCPADMIN_CHECKPOINT_FILE", "MCPADMIN_EXPORT_DIRECTORIES")
#: what a backup is restored to, and what the user must be able to do with it
_RESTORED = {
    "mcpadmin.sqlite3": os.R_OK | os.W_OK,
    "checkpoints.jsonl": os.R_OK | os.W_OK,
    "keyring.json": os.R_OK,
    "checkpoint_key.json": os.R_OK,
    "secret_key": os.R_OK,
}
_CODE = ("mcpadmin", "servers", "sessions")
_CLONE_NEWUSER = 0x10000000
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITY_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class User:
    uid: int
    gid: int
    name: str  # empty for a number without an account
    home: str

    def __str__(self) -> str:
        return f"{self.name} ({self.uid})" if self.name else f"{self.uid}"


@dataclass(frozen=True)
class Privileges:
    """How `up` continues. `dropped`: no longer as root. `contained`: in the namespace, where its user is 0. `lines`:
    what to print about it."""

    dropped: bool = False
    contained: bool = False
    lines: tuple[str, ...] = ()


def drop(data_dir: Path, wanted: str) -> Privileges:
    """Become the user that mcpadmin is to run as. Raises StartProblem. `wanted`: a name, a number, `root`, or nothing: then
    root stays root where it cannot be given up, and says why."""
    if os.geteuid() != 0:
        if wanted and _named(wanted).uid != os.geteuid():
            raise StartProblem(
                f"only root can switch to user {wanted}, and this process runs as user ID {os.geteuid()}",
                "Start it as root, or without --user.",
            )
        return Privileges()
    if wanted in (STAY, "0"):
        return Privileges()
    user = _named(wanted) if wanted else _chosen(data_dir)
    if user.uid == 0:
        return Privileges()
    _make(data_dir)
    _require_own(data_dir, user)
    namespace, refused = _namespace(user)
    problem = obstacle(user, data_dir) or ("" if wanted else refused)
    if problem:
        if namespace >= 0:
            os.close(namespace)
        if wanted or data_dir.stat().st_uid != 0:
            raise StartProblem(
                f"mcpadmin cannot run as user {user}: {problem}",
                f"Correct this, or start with --user root after `chown -R root {data_dir}`.",
            )
        words = f"warning: running as root, because mcpadmin cannot run as another user: {problem}; use --user root to accept this"
        return Privileges(lines=(words,))
    lines = [*_hand_over(data_dir, user), f"running as user {user} instead of root"]
    lines += _unwritable(user, data_dir)
    if namespace < 0:
        lines.append(f"warning: stdio servers run as that user too, because {refused}")
    _compile()
    if namespace < 0:
        become(user)
    else:
        _enter(namespace, user)
        os.close(namespace)
        _settle(user)
    return Privileges(dropped=True, contained=namespace >= 0, lines=tuple(lines))


def act_as_owner(data_dir: Path) -> None:
    """For the commands of manage.py: that user could not access what root writes into the user's data directory."""
    if os.geteuid() != 0:
        return
    with suppress(OSError):
        owner = data_dir.stat()
        if owner.st_uid and not obstacle(user := _of(owner.st_uid, owner.st_gid), data_dir):
            become(user)


# --- the user --------------------------------------------------------------------------------------------------------
def _named(wanted: str) -> User:
    try:
        entry = pwd.getpwnam(wanted)
    except KeyError:
        if wanted.isascii() and wanted.isdecimal() and 0 <= int(wanted) < 2**32 - 1:
            return _of(int(wanted), int(wanted))
        raise StartProblem(
            f"there is no user {wanted!r}",
            f"Create one (useradd --system {ACCOUNT}), or set --user to a numeric user ID.",
        ) from None
    return User(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir)


def _of(uid: int, gid: int) -> User:
    with suppress(KeyError):
        entry = pwd.getpwuid(uid)
        return User(uid, entry.pw_gid, entry.pw_name, entry.pw_dir)
    return User(uid, gid, "", "")


def _chosen(data_dir: Path) -> User:
    """The owner of the data directory, if that is not root; else the account `mcpadmin`; else a number without an account."""
    with suppress(OSError):
        owner = data_dir.stat()
        if owner.st_uid != 0:
            return _of(owner.st_uid, owner.st_gid)
    with suppress(KeyError):
        entry = pwd.getpwnam(ACCOUNT)
        return User(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir)
    first, count = _server_users()
    number = first - 1 if count else FIRST_SERVER_USER - 1
    return User(number, number, "", "")


def _server_users() -> tuple[int, int]:
    """The range; in a container, the upper half of the mapped ids. (0, 0) if there is none."""
    try:
        lines = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    except OSError:
        return 0, 0
    mapped = [(int(start), int(size)) for start, _, size in map(str.split, lines)]
    last = FIRST_SERVER_USER + SERVER_USERS
    if any(start < FIRST_SERVER_USER and start + size >= last for start, size in mapped):
        return FIRST_SERVER_USER, SERVER_USERS
    start, size = max(mapped, key=lambda entry: entry[1], default=(0, 0))
    return (start + size // 2, size // 2) if size >= 2_000 else (0, 0)


def become(user: User) -> None:
    """For good. Raises OSError."""
    _take_groups(user)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    _settle(user)


def _take_groups(user: User) -> None:
    if user.name:
        os.initgroups(user.name, user.gid)
    else:
        os.setgroups([])


def _settle(user: User) -> None:
    os.environ["HOME"] = user.home or "/"
    os.environ["USER"] = os.environ["LOGNAME"] = user.name or str(user.uid)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]  # folders of root
    hardening.forbid_dumps()  # changing the user undoes it


# --- the namespace ---------------------------------------------------------------------------------------------------
def _namespace(user: User) -> tuple[int, str]:
    """A descriptor of it, or -1 and the reason."""
    first, count = _server_users()
    if not sys.platform.startswith("linux") or not count:
        return -1, "this system has no user IDs to spare for stdio servers"
    if first <= user.uid < first + count:
        return -1, f"user ID {user.uid} is in the range reserved for stdio servers ({first} to {first + count - 1})"
    made, making = os.pipe()
    holder = os.fork()
    if holder == 0:
        _hold(making)
    os.close(making)
    try:
        if refused := os.read(made, 200).removeprefix(b"made").decode():
            return -1, refused
        for name, own in (("uid_map", user.uid), ("gid_map", user.gid)):
            # In one write, as the kernel wants it.
            Path(f"/proc/{holder}/{name}").write_bytes(f"0 {own} 1\n{first} {first} {count}\n".encode())
        found = os.open(f"/proc/{holder}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        return -1, f"a user namespace could not be set up ({problem.strerror})"
    finally:
        os.close(made)
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
    if refused := _answer(lambda: _enter(found, user)):
        os.close(found)
        return -1, f"a user namespace could not be entered ({refused})"
    return found, ""


def _hold(making: int) -> None:
    """In a child: keep a namespace until it is opened."""
    try:
        _checked(_libc.unshare(_CLONE_NEWUSER))
        os.write(making, b"made")
        signal.pause()
    except OSError as problem:
        os.write(making, f"this system does not allow user namespaces ({problem.strerror})".encode())
    finally:
        os._exit(1)


def _enter(namespace: int, user: User) -> None:
    """As root, become mcpadmin's user in it. The account's groups are kept, although they are not mapped."""
    _take_groups(user)
    _checked(_libc.setns(namespace, _CLONE_NEWUSER))
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def renounce() -> None:
    """In a child that is about to become a part, drop all privileges for good: with an empty bounding set, no program
    can grant any, although the user is 0. Raises OSError."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)))


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


# --- files -----------------------------------------------------------------------------------------------------------
def obstacle(user: User, data_dir: Path) -> str:
    """Why this user cannot run mcpadmin; empty if it can."""

    def question() -> str:
        become(user)
        return next(_out_of_reach(data_dir), "")

    return _answer(question)


def _out_of_reach(data_dir: Path) -> Iterator[str]:
    if not os.access(sys.executable, os.X_OK):
        yield f"it has no permission to run {sys.executable}"
    own = (str(ROOT / name) for name in ("manage.py", *_CODE, "templates", "static"))
    for path in (*own, *sys.path):
        if os.path.lexists(path) and not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
            yield f"it has no permission to read {path}"
    for name in FILE_VARIABLES:
        given = os.environ.get(name, "")
        if not given or Path(given).is_relative_to(data_dir):
            continue
        if os.path.lexists(given) and not os.access(given, os.R_OK):
            yield f"it has no permission to read {given} ({name})"
        elif not os.path.lexists(given) and not _can_be_made(Path(given)):
            yield f"it has no permission to read or create {given} ({name})"
    try:
        mine = data_dir.stat().st_uid in (0, os.geteuid())  # root's is handed over
    except OSError:
        yield f"it has no permission to enter {data_dir.parent}"
        return
    if not mine and not os.access(data_dir, os.W_OK | os.X_OK):
        yield f"it has no permission to write to {data_dir}"


def _can_be_made(path: Path) -> bool:
    folder = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    return os.access(folder, os.W_OK | os.X_OK)


def _unwritable(user: User, data_dir: Path) -> Iterator[str]:
    """A line for each place that a start as root could write and this user cannot."""
    for name in WRITTEN_VARIABLES:
        for given in filter(None, map(str.strip, os.environ.get(name, "").split(","))):
            path = Path(given)
            if not path.is_relative_to(data_dir) and _answer(partial(_refused, user, path)):
                yield f"warning: user {user} has no permission to write to {path} ({name})"


def _refused(user: User, path: Path) -> str:
    become(user)
    return "" if (os.access(path, os.W_OK) if os.path.lexists(path) else _can_be_made(path)) else "no"


def _answer(question: Callable[[], str | None]) -> str:
    """The answer of a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = ""
        try:
            answer = question() or ""
        except OSError as problem:
            answer = str(problem.strerror)
        finally:
            os.write(writing, answer.encode(errors="replace")[:4096])
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    return answer


def _make(data_dir: Path) -> None:
    """A missing data directory, in folders that can be passed."""
    missing = [path for path in (data_dir, *data_dir.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700)
            if path != data_dir:
                path.chmod(0o755)
    except OSError as problem:
        raise StartProblem(
            f"the data directory {data_dir} cannot be created ({problem.strerror})", "Choose another with --data-dir."
        ) from problem


def _require_own(data_dir: Path, user: User) -> None:
    """Raises StartProblem for files in a directory of the user's that the user may not use, such as those of a backup that root restored.
    Root does not give them away by itself: in a folder of another user, a name may stand for any file."""
    if data_dir.stat().st_uid == 0:
        return  # all of it is handed over

    def question() -> str:
        become(user)
        needed = ((str(data_dir / name), access) for name, access in _RESTORED.items())
        return shlex.join(path for path, access in needed if os.path.exists(path) and not os.access(path, access))

    if files := _answer(question):
        raise StartProblem(
            f"mcpadmin cannot run as user {user}, which cannot access {files}",
            f"After restoring a backup as root, run chown {user.uid}:{user.gid} {files}",
        )


def _hand_over(data_dir: Path, user: User) -> Iterator[str]:
    """Give root's files in its own data directory to the user; files of servers stay theirs. Only root can have put
    anything into a folder of root, so no link or hard link leads elsewhere. The data directory itself comes last: if
    this is interrupted, the next start does the rest."""
    if data_dir.stat().st_uid != 0:
        return
    lock = preflight.acquire_lock(data_dir)  # a mcpadmin that runs there as root would lose its files
    try:
        valkey.forget_socket(data_dir / "valkey")
        count = _give(data_dir, user)
        preflight.release_lock(data_dir, lock)
        os.chown(data_dir, user.uid, user.gid)
    except OSError as problem:
        raise StartProblem(
            f"{problem.filename or data_dir} could not be transferred to user {user} ({problem.strerror})",
            "Start with --user root, or move the data directory to a file system that supports file owners.",
        ) from problem
    if count:
        yield f"the data directory {data_dir} belonged to root and now belongs to user {user}"


def _give(top: Path, user: User) -> int:
    count = 0
    for _, folders, files, descriptor in os.fwalk(top, follow_symlinks=False):
        for name in (*folders, *files):
            state = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if state.st_uid == 0:
                os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
                count += not stat.S_ISDIR(state.st_mode)
            elif name in folders:
                folders.remove(name)
    return count


def _compile() -> None:
    """The user cannot write bytecode next to root's code, and would compile everything at each start."""
    if ROOT.stat().st_uid != 0:
        return
    child = os.fork()
    if child == 0:
        try:
            import compileall  # noqa: PLC0415 - no other command needs it

            os.umask(0o022)
            for folder in (ROOT / name for name in _CODE):
                compileall.compile_dir(folder, quiet=2)
                for cache in folder.rglob("__pycache__"):
                    cache.chmod(0o755)
                    for file in cache.iterdir():
                        if not file.stat().st_mode & 0o004:
                            file.chmod(0o644)
        finally:
            os._exit(0)
    os.waitpid(child, 0)

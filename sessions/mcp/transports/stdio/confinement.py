"""What a confined stdio server may touch, and the job for runner.py that makes it so."""

import os
import pwd
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from . import names
from .reach import Host, Network

RUNNER: Final = str(Path(__file__).with_name("runner.py"))
#: programs and libraries of the system, and what tells about the processor
SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"),
)
#: of /proc, where it shows processes of others too
SHARED_PROC: Final = (
    *("/proc/self", "/proc/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems", "/proc/cgroups", "/proc/mounts"),
)
#: the part of /etc that programs need: names, certificates, time, libraries, fonts
ETC: Final = tuple(
    f"/etc/{name}"
    for name in (
        *("ssl", "pki", "ca-certificates", "ca-certificates.conf", "crypto-policies", "openssl", "hosts", "host.conf"),
        *("nsswitch.conf", "gai.conf", "protocols", "services", "localtime", "timezone", "ld.so.cache", "ld.so.conf"),
        *("ld.so.conf.d", "alternatives", "mime.types", "magic", "os-release", "debian_version", "alpine-release"),
        *("chromium", "chromium.d", "fonts", "terminfo", "python3", "nodejs", "java", "static"),
    )
)
#: in addition, where there is no view of its own in which these can be made
SHARED_ETC: Final = ("/etc/passwd", "/etc/group", "/etc/resolv.conf")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SCRIPTS: Final = frozenset(
    (".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".pl", ".php", ".sh", ".jar", ".lua")
)
#: folders of everything, where a script or program lies only by chance
_TOO_MUCH: Final = frozenset(("/", "/etc", "/home", "/root", "/tmp", "/var", "/opt", "/srv", "/mnt", "/media"))  # noqa: S108
#: threads of one user, where those of servers are not counted apart
_TOGETHER: Final = 8_192
#: what makes a folder a program
_MAINS: Final = ("__main__.py", "index.js", "index.mjs")
_SUBCOMMAND: Final = re.compile(r"[a-z]{1,12}")
_FOLDERS: Final = ("node_modules", ".venv")
_SHEBANGS: Final = 4


class Tier(StrEnum):
    """Best first; suitable to show on a page."""

    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Confines:
    """What confines servers on this machine. `view`: with a file system of its own besides. `alone`: in a PID namespace
    of its own. `counted`: processes are counted for each server. `reason`: why there is no better tier."""

    tier: Tier
    view: bool
    alone: bool = False
    counted: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Confinement:
    """`home`, `tmp`, `work`: folders of its own. `read`, `write`: further paths. `protected`: ours, which no path of this
    server may hold or lie in, except its own folders. `uid`: its user, where we are root. `mount_point`: an empty
    folder that only we use."""

    home: str
    tmp: str
    mount_point: str
    work: str = ""
    read: tuple[str, ...] = field(default=(), repr=False)
    write: tuple[str, ...] = field(default=(), repr=False)
    protected: tuple[str, ...] = field(default=(), repr=False)
    uid: int | None = None
    network: Network = Network.PUBLIC
    hosts: tuple[Host, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def own(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.home, self.tmp, self.work)))

    def environment(self, declared: Mapping[str, str]) -> dict[str, str]:
        """What is set unless the registration sets it."""
        user = f"mcp{self.uid}" if self.uid else _user_name()
        made = {
            "HOME": self.home,
            "USER": user,
            "LOGNAME": user,
            "TMPDIR": self.tmp,
            "XDG_CACHE_HOME": f"{self.home}/.cache",
            "XDG_CONFIG_HOME": f"{self.home}/.config",
            "XDG_DATA_HOME": f"{self.home}/.local/share",
            "XDG_STATE_HOME": f"{self.home}/.local/state",
            "XDG_RUNTIME_DIR": self.tmp,
        }
        if self.network is not Network.NONE:
            made["RES_OPTIONS"] = "use-vc"  # see names.py
        return made | dict(declared)

    def allows(self, path: str) -> bool:
        """Whether a path is among those that the registration grants (not: those that every server may read)."""
        return any(_within(path, granted) for granted in (*self.own, *self.read, *self.write))


def job(
    confinement: Confinement,
    program: str,
    arguments: Iterable[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    confines: Confines,
) -> dict[str, Any]:
    """What runner.py takes. Reads directories: call it in a thread."""
    given, view = list(arguments), confines.view
    granted = _both(confinement.read)
    write = [*_both((*confinement.own, *confinement.write))]
    found = list(_free(_needed(program, given, cwd, environment), confinement))
    links, system = _split_links(SYSTEM)
    shared = (*(("/proc",) if confines.alone else SHARED_PROC), *(() if view else SHARED_ETC))
    read = [*system, *ETC, *shared, *found, *granted, *(() if cwd in write else _both((cwd,)))]
    return {
        "program": program,
        "arguments": given,
        "environment": dict(environment),
        "cwd": cwd,
        "uid": confinement.uid,
        "view": view,
        "landlock": confines.tier is Tier.LANDLOCK,
        # Our own files are in sight only with our own user and no view of its own.
        "modes": confinement.uid is None and not view and confines.tier is Tier.LANDLOCK,
        "mount_point": confinement.mount_point,
        "tmp": confinement.tmp,
        "read": list(dict.fromkeys(read)),
        "write": list(dict.fromkeys(write)),
        "mounts": _mounts(read, write, links),
        "devices": list(DEVICES),
        "links": links if view or confines.tier is Tier.BUBBLEWRAP else {},
        "made_files": _made_files(confinement) if view else {},
        "owned_by_others": _owned_by_others(confinement, found, [*granted, *write, cwd]),
        "limits": _limits(confinement, counted=confines.counted),
    }


def _limits(confinement: Confinement, *, counted: bool) -> dict[str, int]:
    """Processes are counted for each user, or each user namespace: without either, ours and those of other servers
    count too, and only a bomb shall meet the limit."""
    limits = dict(confinement.limits)
    if "NPROC" in limits and not counted and confinement.uid is None:
        limits["NPROC"] = max(limits["NPROC"], _TOGETHER)
    return limits


def _mounts(read: list[str], write: list[str], links: Iterable[str]) -> list[tuple[str, bool]]:
    """Each path of a view and whether it may be written, outer ones first. A link inside a mounted folder is there
    already, and what it leads to is mounted by its own name."""
    mounts: list[tuple[str, bool]] = []
    for path, writable in sorted((dict.fromkeys(read, False) | dict.fromkeys(write, True)).items()):
        inside = any(_within(path, outer) for outer, _ in mounts)
        linked = any(_within(path, link) for link in links) or (inside and os.path.realpath(path) != path)
        if path != "/proc" and os.path.exists(path) and not linked:
            mounts.append((path, writable))
    return mounts


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _both(paths: Iterable[str]) -> list[str]:
    """Each path as it is written and as it really is: the kernel judges the real one, the program uses the other."""
    return list(dict.fromkeys(form for path in paths for form in (os.path.normpath(path), os.path.realpath(path))))


def _free(paths: Iterable[str], confinement: Confinement) -> Iterator[str]:
    """Of paths that nobody named, those that may be shown: nothing of ours, and no whole home."""
    own = [os.path.realpath(place) for place in confinement.own]
    ours = [os.path.realpath(place) for place in confinement.protected]
    for path in dict.fromkeys(paths):
        real = os.path.realpath(path)
        if any(_within(real, place) for place in own):
            yield path
            continue
        is_ours = any(_within(real, place) or _within(place, real) for place in ours)
        if not is_ours and real not in _homes() and real not in _TOO_MUCH:
            yield path


def first_overlap(paths: Iterable[str], confinement: Confinement) -> str | None:
    """The first path that holds, or lies in, what is ours."""
    ours = [os.path.realpath(place) for place in confinement.protected]
    own = [os.path.realpath(place) for place in confinement.own]
    for path in paths:
        real = os.path.realpath(path)
        if any(_within(real, place) for place in own):
            continue
        if any(_within(real, place) or _within(place, real) for place in ours):
            return path
    return None


@cache
def _homes() -> frozenset[str]:
    return frozenset(os.path.realpath(entry.pw_dir) for entry in pwd.getpwall() if entry.pw_dir)


def _split_links(paths: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """`/bin` is a link to `/usr/bin` on most systems, which a view makes again."""
    links = {path: os.readlink(path) for path in paths if os.path.islink(path)}
    return links, [path for path in paths if path not in links and os.path.exists(path)]


def _needed(program: str, arguments: list[str], cwd: str, environment: Mapping[str, str]) -> Iterator[str]:
    """The program with its interpreters, the folders of PATH, and the files that the command line names."""
    search = environment.get("PATH", os.defpath)
    for folder in search.split(os.pathsep):
        if folder.startswith("/") and os.path.isdir(folder):
            yield os.path.dirname(folder) if os.path.basename(folder) == "shims" else folder
    yield from _program(program, search)
    script_seen = False
    for argument in arguments:
        path = os.path.normpath(os.path.join(cwd, argument))
        if "\0" in argument or len(argument) > 4096 or argument.startswith("-"):
            continue
        if not script_seen and any(os.path.isfile(f"{path}/{name}") for name in _MAINS):
            script_seen = True
            yield from _script(f"{path}/.")
        if not os.path.isfile(path):
            script_seen |= not _SUBCOMMAND.fullmatch(argument)
            continue
        yield from _both((path,))
        if os.access(path, os.X_OK) and argument.startswith("/"):
            yield from _program(path, search)
        if not script_seen and os.path.splitext(path)[1] in _SCRIPTS:
            script_seen = True
            yield from _script(path)


def _program(program: str, search: str) -> Iterator[str]:
    """A program, what its links lead to, and the installation that it belongs to."""
    todo, seen = [program], set[str]()
    while todo and len(seen) < _SHEBANGS * 4:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        yield from _installation(path)
        if os.path.islink(path):
            todo.append(os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))))
        real = os.path.realpath(path)
        if real != path:
            todo.append(real)
        interpreter = _interpreter(real, search)
        if interpreter:
            todo.append(interpreter)


def _installation(program: str) -> Iterator[str]:
    folder = os.path.dirname(program)
    if any(_within(program, system) for system in SYSTEM):
        return
    prefix = os.path.dirname(folder) if os.path.basename(folder) in ("bin", "sbin", "shims") else folder
    hidden = os.path.basename(prefix).startswith(".")  # such as ~/.cargo and ~/.local, which hold more than programs
    if hidden and not os.path.isfile(f"{prefix}/pyvenv.cfg") and os.path.basename(folder) != "shims":
        prefix = folder
    yield from _both((prefix,))
    yield from (outer for outer in (_outermost(program, "node_modules"),) if outer)
    try:
        text = Path(prefix, "pyvenv.cfg").read_text("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip().startswith("/"):
            home = value.strip()
            yield from _both((os.path.dirname(home) if os.path.basename(home) == "bin" else home,))


def _interpreter(program: str, search: str) -> str:
    """Of a script that names one in its first line."""
    try:
        with open(program, "rb") as file:
            first = file.readline(256)
    except OSError:
        return ""
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return (shutil.which(words[0], path=search) or "") if words else ""
    return words[0] if words else ""


def _outermost(path: str, folder: str) -> str:
    head, found, _ = path.partition(f"/{folder}/")
    return f"{head}/{folder}" if found else ""


def _script(path: str) -> Iterator[str]:
    """The folder of a script, and the packages beside or above it that an interpreter looks for."""
    folder = os.path.dirname(path)
    yield from _both((folder,))
    for place in (folder, *list(map(str, Path(folder).parents))[:3]):
        yield from (
            form for name in _FOLDERS if os.path.isdir(f"{place}/{name}") for form in _both((f"{place}/{name}",))
        )
        yield from (
            f"{place}/{name}" for name in ("package.json", "pyproject.toml") if os.path.isfile(f"{place}/{name}")
        )


def _made_files(confinement: Confinement) -> dict[str, str]:
    uid = confinement.uid or os.getuid()
    name = f"mcp{confinement.uid}" if confinement.uid else _user_name()
    root = "root:x:0:0:root:/:/usr/sbin/nologin\n" if uid else ""
    group = "root:x:0:\n" if uid else ""
    gid = confinement.uid or os.getgid()
    made = {
        "/etc/passwd": f"{root}{name}:x:{uid}:{gid}::{confinement.home}:/bin/sh\n",
        "/etc/group": f"{group}{name}:x:{gid}:\n",
    }
    if confinement.network is not Network.NONE:
        lines = "".join(f"nameserver {server}\n" for server in names.servers())
        made["/etc/resolv.conf"] = f"{lines}options use-vc\n"
    return made


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as a user without a name
        return "mcp"


def _owned_by_others(confinement: Confinement, found: list[str], granted: list[str]) -> list[str]:
    """Paths whose owner the server's user has to stand for: all that were granted, the rest where others may not read."""
    if not confinement.uid:
        return []
    others = []
    for path in dict.fromkeys((*found, *granted)):
        try:
            state = os.stat(path)
        except OSError:
            continue
        open_to_all = state.st_mode & 0o004 and (not stat.S_ISDIR(state.st_mode) or state.st_mode & 0o001)
        if state.st_uid != confinement.uid and (path in granted or not open_to_all):
            others.append(path)
    return others

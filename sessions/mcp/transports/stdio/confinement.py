"""What a confined stdio server may touch, and the job for runner.py that makes it so."""

import glob
import os
import pwd
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from . import names
from .connect_gate import Host, Network

#: for reading directories, so that many starts at once do not make as many threads
threads: Final = ThreadPoolExecutor(2, "confinement")
RUNNER: Final = str(Path(__file__).with_name("runner.py"))
#: reads the module's cached bytecode, which running the file would not
LOADER: Final = (
    "import sys\n"
    "from _frozen_importlib_external import SourceFileLoader as L\n"
    "m = type(sys)('runner'); L('runner', sys.argv[1]).exec_module(m); m.main(sys.argv[2:])"
)
PYTHON: Final = (os.path.realpath(sys.executable), "-I", "-S", "-c", LOADER, RUNNER)
#: programs and libraries of the system, and information about the processor
SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage"),
)
#: the parts of /proc that are shown where /proc as a whole would also show processes of others
SHARED_PROC: Final = (
    *("/proc/self", "/proc/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems", "/proc/cgroups", "/proc/mounts"),
)
#: the part of /etc that programs need: names, certificates, time, libraries, fonts
ETC: Final = tuple(
    f"/etc/{name}"
    for name in (
        # not their folders of private keys, which the group of mcpadmin's user may be allowed to read
        *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ssl/ca-bundle.pem", "pki/tls/certs", "pki/tls/cert.pem"),
        *(
            "pki/tls/openssl.cnf",
            "pki/ca-trust",
            "ca-certificates",
            "ca-certificates.conf",
            "crypto-policies",
            "openssl",
            "hosts",
            "host.conf",
        ),
        *("nsswitch.conf", "gai.conf", "protocols", "services", "localtime", "timezone", "ld.so.cache", "ld.so.conf"),
        *("ld.so.conf.d", "alternatives", "mime.types", "magic", "os-release", "debian_version", "alpine-release"),
        *("chromium", "chromium.d", "fonts", "terminfo", "python3", "nodejs", "java", "static"),
    )
)
#: shown in addition where the server has no view of its own, in which they could be generated
SHARED_ETC: Final = ("/etc/passwd", "/etc/group", "/etc/resolv.conf")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: interfaces of the kernel, of which every server gets the harmless part. Shared memory is an ordinary file system
_INTERFACES: Final = ("/proc", "/sys", "/dev")
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # only compared
_SCRIPTS: Final = frozenset(
    (".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".pl", ".php", ".sh", ".jar", ".lua")
)
#: folders that hold everything: a script or program in them says nothing about the rest
_TOO_MUCH: Final = frozenset(("/", "/etc", "/home", "/root", "/tmp", "/var", "/opt", "/srv", "/mnt", "/media"))  # noqa: S108  # only compared
#: a second, short path of a server's own temporary folder. UNIX sockets have paths of at most 107 characters, and
#: browsers create some below TMPDIR. A container's /tmp is in memory.
_OWN_TMP: Final = "/tmp"  # noqa: S108  # only where it is its own
CONTAINER_TMP: Final = "/var/tmp"  # noqa: S108  # the same
#: threads of one user, where the threads of servers are not counted separately
_TOGETHER: Final = 8_192
#: what makes a folder a program
_MAINS: Final = ("__main__.py", "index.js", "index.mjs")
_SUBCOMMAND: Final = re.compile(r"[a-z]{1,12}")
_FOLDERS: Final = ("node_modules", ".venv")
_SHEBANGS: Final = 4
_INTERPRETER: Final = re.compile(r"(?:python|pypy|node|ruby|perl)[0-9.]*t?")
#: files by which an installation of one of them is recognised
_LANGUAGES: Final = (
    "lib/python3*/os.py",
    "lib/pypy3*/os.py",
    "include/node/node.h",
    "lib/node_modules/npm",
    "lib/ruby/[0-9]*",
    "lib/perl5",
)
#: the same limit as the kernel's
_MOST_LINKS: Final = 40


class Tier(StrEnum):
    """Best first; suitable to show on a page."""

    CONTAINER = "container"  # only where an operator names a runtime
    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class MachineConfinement:
    """How servers are confined on this machine. `view`: each also has a file system view of its own. `alone`: each has
    a PID namespace of its own. `counted`: processes are counted per server. `has_image`: an image replaces the system's
    programs. `reason`: why there is no better tier."""

    tier: Tier
    view: bool
    alone: bool = False
    counted: bool = False
    has_image: bool = False
    reason: str = ""

    @property
    def has_own_tmp(self) -> bool:
        """Whether /tmp is the server's own."""
        return self.view or self.tier in (Tier.BUBBLEWRAP, Tier.CONTAINER)

    @property
    def own_tmp_folders(self) -> tuple[str, ...]:
        """Temporary folders of the system that are the server's own."""
        if self.tier is Tier.CONTAINER:
            return (_OWN_TMP, CONTAINER_TMP)
        return (_OWN_TMP,) if self.has_own_tmp else ()

    def has_keeper(self, uid: int | None) -> bool:
        """Whether the server needs a keeper: it has neither a PID namespace nor a user of its own by which its
        processes could be recognised."""
        return uid is None and not self.alone


@dataclass(frozen=True, slots=True)
class Confinement:
    """`home`, `tmp`, `work`: the server's own folders. `package`: the folder of its installed package, which it may
    read, and write only during installation. `read`, `write`: further paths. `protected`: our own paths: no path of
    this server may contain or be inside one, except its own folders. `uid`: its user, if we are root. `mount_point`: an
    empty folder that only we use."""

    home: str
    tmp: str
    mount_point: str
    work: str = ""
    package: str = ""
    is_installing: bool = False
    read: tuple[str, ...] = field(default=(), repr=False)
    write: tuple[str, ...] = field(default=(), repr=False)
    protected: tuple[str, ...] = field(default=(), repr=False)
    uid: int | None = None
    network: Network = Network.PUBLIC
    hosts: tuple[Host, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def own(self) -> tuple[str, ...]:
        """The server's own folders that it may write."""
        return tuple(filter(None, (self.home, self.tmp, self.work, self.package if self.is_installing else "")))

    def installing(self, folder: str, registries: Iterable[Host]) -> "Confinement":
        """The confinement of the package manager that installs into a folder of the server."""
        network = Network.LISTED if self.network is Network.NONE else self.network
        hosts = (*self.hosts, *registries)
        return replace(self, package=folder, is_installing=True, network=network, hosts=hosts)

    def environment(self, declared: Mapping[str, str]) -> dict[str, str]:
        """Defaults for variables that the registration does not set."""
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
        return any(_within(path, granted) for granted in (*self.own, self.package, *self.read, *self.write) if granted)


def job(
    confinement: Confinement,
    program: str,
    arguments: Iterable[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    confines: MachineConfinement,
) -> dict[str, Any]:
    """The input of runner.py. Reads directories: call it in a thread."""
    given, view, isolated = list(arguments), confines.view, confines.has_own_tmp
    has_made_files = view or confines.tier is Tier.CONTAINER
    short_tmp = _OWN_TMP if view else CONTAINER_TMP if confines.tier is Tier.CONTAINER else confinement.tmp
    places = _Places(confinement)
    package = (confinement.package,) if confinement.package else ()
    granted = [*map(os.path.normpath, (*package, *confinement.read, *(() if cwd in confinement.own else (cwd,))))]
    write = [*map(os.path.normpath, (*confinement.own, *confinement.write))]
    found = list(places.harmless(_needed(program, given, cwd, environment, places)))
    links, system = _split_links(SYSTEM)
    system = [*SYSTEM] if confines.has_image else system  # its links are its own
    shared = (*(("/proc",) if confines.alone else SHARED_PROC), *(() if has_made_files else SHARED_ETC))
    read = [*places.without_ours((*system, *ETC, *shared)), *found, *granted]
    sources = {path: source for path in dict.fromkeys((*read, *write)) if (source := places.real(path)) is not None}
    read, write = _with_sources(read, sources), _with_sources(write, sources)
    return {
        "program": program,
        "arguments": given,
        "environment": {name: short_tmp if value == confinement.tmp else value for name, value in environment.items()},
        "cwd": cwd,
        "uid": confinement.uid,
        "view": view,
        "landlock": confines.tier is Tier.LANDLOCK,
        "landlock_if_there": confines.tier is Tier.CONTAINER,
        "own_tmp": confines.has_own_tmp,
        "network": str(confinement.network),
        "modes": not isolated,
        "others": confines.has_keeper(confinement.uid),
        "keeper": confines.has_keeper(confinement.uid),
        "ipc": isolated,
        "mount_point": os.path.realpath(confinement.mount_point),
        "tmp": os.path.realpath(confinement.tmp),
        "read": read,
        "write": write,
        "mounts": _mounts(read, write, sources, links),
        "devices": list(DEVICES),
        "links": links if isolated else {},
        "made_files": _made_files(confinement) if has_made_files else {},
        "owned_by_others": _owned_by_others(confinement, _of(sources, found), _of(sources, [*granted, *write])),
        "limits": _limits(confinement, counted=confines.counted),
    }


class _Places:
    """Resolves paths without trusting links that the server may have created. A link in a folder that it may write can
    be its own work, from an earlier run or by another of its processes. Following it would grant what nobody
    granted."""

    def __init__(self, confinement: Confinement) -> None:
        # The package's code ran in the folder of the package, so links there cannot be trusted either.
        self._own = [os.path.realpath(place) for place in (*confinement.own, confinement.package) if place]
        self._ours = [os.path.realpath(place) for place in confinement.protected]
        self._writable = [*self._own, *map(os.path.realpath, confinement.write)]

    def is_writable(self, path: str) -> bool:
        """Whether the server can have written this path."""
        return any(_within(path, place) for place in self._writable)

    def real(self, path: str) -> str | None:
        """The real path; None if the path goes through a link that the server can have created. The links of /proc
        depend on the process that reads them, and only the kernel creates them."""
        if path.startswith("/proc/"):
            return path
        at, rest, links = "/", list(reversed(os.path.normpath(path).split("/"))), 0
        while rest:
            part = rest.pop()
            if part in ("", "."):
                continue
            step = os.path.dirname(at) if part == ".." else os.path.join(at, part)
            if not os.path.islink(step):
                at = step
                continue
            links += 1
            if self.is_writable(at) or links > _MOST_LINKS:
                return None
            target = os.readlink(step)
            at = "/" if target.startswith("/") else at
            rest += reversed(target.split("/"))
        return at

    def overlaps(self, path: str) -> bool:
        """Whether a path contains, or is inside, one of our own paths."""
        real = _led_to(path)
        if any(_within(real, place) for place in self._own):
            return False
        return any(_within(real, place) or _within(place, real) for place in self._ours)

    def harmless(self, paths: Iterable[str]) -> Iterator[str]:
        """Of paths that nobody granted, those that may be shown: none of our own, no whole home directory, no processes or
        devices, and none that the server may write anyway."""
        for path in dict.fromkeys(paths):
            real = self.real(path)
            if real is None or self.is_writable(real) or self.overlaps(path) or is_interface(path):
                continue
            if real in _homes() or real in _TOO_MUCH:
                continue
            yield path

    def without_ours(self, paths: Iterable[str]) -> Iterator[str]:
        """The paths without ours. A path that contains one of ours is replaced by its other entries."""
        for path in paths:
            real = os.path.realpath(path)
            if not any(_within(place, real) for place in self._ours):
                yield path
            elif not any(_within(real, place) for place in self._ours):
                yield from self.without_ours(entry.path for entry in os.scandir(path))


def _with_sources(paths: Iterable[str], sources: Mapping[str, str]) -> list[str]:
    """Paths together with their real paths: the kernel checks the real paths, programs use the names."""
    return list(dict.fromkeys(form for path in paths if path in sources for form in (path, sources[path])))


def _of(sources: Mapping[str, str], paths: Iterable[str]) -> list[str]:
    return [sources[path] for path in paths if path in sources]


def _limits(confinement: Confinement, *, counted: bool) -> dict[str, int]:
    """The kernel counts processes per user, or per user namespace. Without either, our processes and those of other
    servers count too, so the limit is raised to one that only a fork bomb reaches."""
    limits = dict(confinement.limits)
    if "NPROC" in limits and not counted and confinement.uid is None:
        limits["NPROC"] = max(limits["NPROC"], _TOGETHER)
    return limits


def _mounts(
    read: list[str], write: list[str], sources: Mapping[str, str], links: Iterable[str]
) -> list[tuple[str, str, bool]]:
    """Each path of a view, its source and whether it is writable, outer paths first. A link inside a mounted folder is
    already there, and its target is mounted under its own name."""
    mounts: list[tuple[str, str, bool]] = []
    for path, writable in sorted((dict.fromkeys(read, False) | dict.fromkeys(write, True)).items()):
        source = sources.get(path, path)
        if path == "/proc" or not os.path.exists(source) or any(_within(path, link) for link in links):
            continue
        inside = any(_within(path, outer) for outer, _, _ in mounts)
        if not (inside and source != path):
            mounts.append((path, source, writable))
    return mounts


def is_of_the_system(path: str) -> bool:
    """Whether an image has its own version of this path."""
    return any(_within(path, place) for place in (*SYSTEM, *ETC, *SHARED_ETC))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _led_to(path: str) -> str:
    """Where a granted path leads: its “..” are resolved before its links. In the other order, a link that the server
    created could replace the folders in between."""
    return os.path.realpath(os.path.normpath(path))


def is_interface(path: str) -> bool:
    """Whether a path leads to processes, settings or devices of the machine, under any name."""
    if "\0" in path:
        return False  # not a path; starting the server reports it
    real = _led_to(path)
    return any(_within(real, place) for place in _INTERFACES) and not _within(real, _SHARED_MEMORY)


def overlaps(path: str, protected: Iterable[str]) -> bool:
    """Whether a path contains, or is inside, one of these."""
    real = _led_to(path)
    return any(_within(real, place) or _within(place, real) for place in map(os.path.realpath, protected))


def first_overlap(paths: Iterable[str], confinement: Confinement) -> str | None:
    """The first path that contains, or is inside, one of our own paths."""
    places = _Places(confinement)
    return next((path for path in paths if places.overlaps(path)), None)


def first_through_own_link(paths: Iterable[str], confinement: Confinement) -> str | None:
    """The first path that goes through a link that the server can have created."""
    places = _Places(confinement)
    return next((path for path in paths if places.real(path) is None), None)


def first_out_of_reach(paths: Iterable[str]) -> str | None:
    """The first path in a folder that we have no permission to enter. Missing paths are left for the server to
    report."""
    for path in paths:
        try:
            os.stat(path)
        except PermissionError:
            return path
        except OSError:
            continue
    return None


@cache
def _homes() -> frozenset[str]:
    return frozenset(os.path.realpath(entry.pw_dir) for entry in pwd.getpwall() if entry.pw_dir)


def _split_links(paths: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """(links, other existing paths). `/bin` is a link to `/usr/bin` on most systems, and a view creates the same
    link."""
    links = {path: os.readlink(path) for path in paths if os.path.islink(path)}
    return links, [path for path in paths if path not in links and os.path.exists(path)]


def _needed(
    program: str, arguments: list[str], cwd: str, environment: Mapping[str, str], places: "_Places"
) -> Iterator[str]:
    """The program with its interpreters, the folders of PATH, and the files that the command line names. The contents
    of a file (its first line, or the target of a link) count only if the server cannot have written it."""
    search = environment.get("PATH", os.defpath)
    for folder in search.split(os.pathsep):
        if folder.startswith("/") and os.path.isdir(folder):
            yield os.path.dirname(folder) if os.path.basename(folder) == "shims" else folder
    yield from _program(program, search, places)
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
        yield path
        if os.access(path, os.X_OK) and argument.startswith("/"):
            yield from _program(path, search, places)
        if not script_seen and os.path.splitext(path)[1] in _SCRIPTS:
            script_seen = True
            yield from _script(path)


def _program(program: str, search: str, places: "_Places") -> Iterator[str]:
    """A program, the targets of its links, and the installation that it belongs to."""
    todo, seen = [program], set[str]()
    while todo and len(seen) < _SHEBANGS * 4:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        real = places.real(path)
        if real is None or places.is_writable(real):
            yield from _interpreter_of_a_project(path, places)
            continue
        yield path
        yield from _installation(path)
        if os.path.islink(path):
            todo.append(os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path))))
        if real != path:
            todo.append(real)
        interpreter = _interpreter(real, search)
        if interpreter:
            todo.append(interpreter)


def _interpreter_of_a_project(program: str, places: "_Places") -> Iterator[str]:
    """The target of a program in a folder that the server can change, if it is an interpreter, which is not secret.
    Virtual environments in a working directory have such programs."""
    real = os.path.realpath(program)
    prefix = os.path.dirname(os.path.dirname(real))
    if places.is_writable(real) or not _INTERPRETER.fullmatch(os.path.basename(real)) or not os.access(real, os.X_OK):
        return
    if any(glob.glob(f"{prefix}/{mark}") for mark in _LANGUAGES):
        yield real
        yield prefix


def _installation(program: str) -> Iterator[str]:
    folder = os.path.dirname(program)
    if any(_within(program, system) for system in SYSTEM):
        return
    prefix = os.path.dirname(folder) if os.path.basename(folder) in ("bin", "sbin", "shims") else folder
    hidden = os.path.basename(prefix).startswith(".")  # such as ~/.cargo and ~/.local, which hold more than programs
    if hidden and not os.path.isfile(f"{prefix}/pyvenv.cfg") and os.path.basename(folder) != "shims":
        prefix = folder
    yield prefix
    yield from (outer for outer in (_outermost(program, "node_modules"),) if outer)
    try:
        text = Path(prefix, "pyvenv.cfg").read_text("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip().startswith("/"):
            home = value.strip()
            yield os.path.dirname(home) if os.path.basename(home) == "bin" else home


def _interpreter(program: str, search: str) -> str:
    """The interpreter that a script names in its first line."""
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
    yield folder
    for place in (folder, *list(map(str, Path(folder).parents))[:3]):
        yield from (f"{place}/{name}" for name in _FOLDERS if os.path.isdir(f"{place}/{name}"))
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
    """Real paths whose owner must be mapped to the server's user: all that were granted, and others that are not
    readable by everyone."""
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

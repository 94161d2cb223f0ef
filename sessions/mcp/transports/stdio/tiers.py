"""How stdio servers are confined on this machine: chosen by a probe that actually attempts what must be refused."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from ...core.errors import LaunchError
from . import confined_start, container
from .confinement import PYTHON, RUNNER, Confinement, MachineConfinement, Tier, job, threads
from .connect_gate import AddressRules, Gate, Network
from .container import Runtime
from .lifetime import PREFIXES, Isolation, found, isolation, resolved

log = logging.getLogger(__name__)


#: users of stdio servers where we are root: above those of people, systemd and containers, or in the upper half of what
#: a container maps
_FIRST_USER, _USERS = 1_900_000_000, 100_000_000
_PROBE: Final = """
import json, os, socket, sys
found = {}
for name, path in (("own", sys.argv[1]), ("secret", sys.argv[2])):
    try:
        open(path).read(); found[name] = True
    except OSError:
        found[name] = False
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), 3); found["connected"] = True
except OSError:
    found["connected"] = False
try:
    os.kill(int(sys.argv[4]), 0); found["signalled"] = True
except OSError:
    found["signalled"] = False
print(json.dumps(found))
"""
_PROBE_SECONDS: Final = 20.0
#: size of the folder /tmp that bubblewrap keeps in memory
_TMP_BYTES: Final = 256 * 1024 * 1024
_found: MachineConfinement | None = None
_containers: tuple[Runtime, container.RuntimeFeatures] | None = None


def user(number: int, *, draft: bool = False) -> int | None:
    """The user of the server with this number; None where we cannot choose: we are not root, or the server lives in a
    user namespace, which knows only ours. Drafts have one half of the users, so that no test ends a running server."""
    if os.geteuid() != 0 or found() is Isolation.PID_NAMESPACE_USER:
        return None
    first, count = _users()
    half = count // 2
    return first + (half if draft else 0) + number % half if half else None


def _users() -> tuple[int, int]:
    try:
        lines = Path("/proc/self/uid_map").read_text("ascii").splitlines()
    except OSError:
        return 0, 0
    mapped = [(int(start), int(outside), int(size)) for start, outside, size in map(str.split, lines)]
    if any(start <= _FIRST_USER and start + size >= _FIRST_USER + _USERS for start, _, size in mapped):
        return _FIRST_USER, _USERS
    start, outside, size = max(mapped, key=lambda entry: entry[2], default=(0, 0, 0))
    if start and start == outside:
        return start, size  # `up` gave up root, and mapped these for us
    return (start + size // 2, size // 2 - 1) if size >= 1_000 else (0, 0)


def own_user() -> str:
    """The number that the machine's administrator sees: outside our user namespace."""
    uid = os.geteuid()
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/uid_map").read_text("ascii").splitlines():
            start, outside, size = map(int, line.split())
            if start <= uid < start + size:
                return str(outside + uid - start)
    return str(uid)


def stands_for_owners() -> bool:
    """Whether a server's user can stand for the owner of a folder. Not where we are root in a user namespace only (see
    mcpadmin/up/unprivileged.py): ID-mapped mounts take the privileges of the one who mounted the file system."""
    try:
        first = Path("/proc/self/uid_map").read_text("ascii").split()
    except OSError:
        return True
    return os.geteuid() != 0 or first[:1] != ["0"] or first[1] == "0"


async def confines(runtime: Runtime | None = None) -> MachineConfinement:
    """The best tier that works here. The first call in a process probes for it. `runtime`: a container runtime to try
    first."""
    global _found
    if _found is None:
        _found = await _probed(runtime)
    return _found


def has_view() -> bool:
    """Whether servers get a file system of their own, as far as the probe has found."""
    return _found is None or _found.has_own_tmp


async def _probed(runtime: Runtime | None) -> MachineConfinement:
    reasons: list[str] = []
    if runtime is not None:
        found, problem = await _in_containers(runtime)
        if found is not None:
            return found
        log.warning("confinement.container does not work: %s", problem)
        reasons.append(f"{runtime.name}: {problem}")
    kept = await isolation()
    counted, namespaces = (
        kept is Isolation.PID_NAMESPACE_USER,
        kept in (Isolation.PID_NAMESPACE, Isolation.PID_NAMESPACE_USER),
    )
    for tier, view in ((Tier.LANDLOCK, True), (Tier.LANDLOCK, False), (Tier.BUBBLEWRAP, False)):
        if view and not namespaces:
            continue
        by_bubblewrap = tier is Tier.BUBBLEWRAP
        tried = MachineConfinement(
            tier,
            view,
            alone=namespaces or by_bubblewrap,
            counted=os.geteuid() != 0 if by_bubblewrap else counted,
            reason=" ".join(reasons),
        )
        problem = await _problem(tried)
        if not problem:
            return tried
        log.info("confinement.%s view=%s does not work: %s", tier, view, problem)
        reasons.append(f"{_NAMES[tier]}: {problem}")
    return MachineConfinement(Tier.NONE, False, reason=" ".join(dict.fromkeys(reasons)))


async def _in_containers(runtime: Runtime) -> tuple[MachineConfinement | None, str]:
    """The tier, or why it does not work."""
    global _containers
    if sys.platform != "linux":
        return None, "only Linux has it."
    try:
        abilities = await container.abilities(runtime)
    except LaunchError as unusable:
        return None, unusable.detail
    _containers = runtime, abilities
    tried = MachineConfinement(
        Tier.CONTAINER,
        view=False,
        alone=True,
        counted=os.geteuid() != 0 and abilities.keeps_users,
        has_image=bool(runtime.image),
    )
    problem = await _problem(tried)
    if not problem:
        return tried, ""
    if not stands_for_owners():
        return None, f"{problem} {_FROM_INSIDE}"
    return None, f"{problem} {_FOR_ORDINARY_USERS}" if os.geteuid() and abilities.roots else problem


_FROM_INSIDE: Final = (
    "mcpadmin gave up root, and few runtimes work from there: start mcpadmin as an ordinary user who can run containers, "
    "or with --user root."
)
_FOR_ORDINARY_USERS: Final = (
    "An ordinary user needs the package uidmap and a range of numbers in /etc/subuid and /etc/subgid for it."
)
_NAMES: Final = {Tier.LANDLOCK: "Landlock", Tier.BUBBLEWRAP: "bubblewrap"}


async def _problem(tried: MachineConfinement) -> str:
    """Why a tier does not work; empty if it does."""
    if sys.platform != "linux":
        return "only Linux has it."
    if tried.tier is Tier.BUBBLEWRAP and shutil.which("bwrap") is None:
        return "the program bwrap is not installed."
    folder = Path(tempfile.mkdtemp(prefix="mcpadmin-probe-"))
    try:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            return await _try(tried, folder, listening.getsockname()[1])
    except LaunchError as problem:
        return problem.detail
    except (OSError, ValueError, TimeoutError) as problem:
        return str(problem) or type(problem).__name__
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _try(tried: MachineConfinement, folder: Path, port: int) -> str:
    secret, confinement = await asyncio.get_running_loop().run_in_executor(threads, _scene, folder)
    output = await _output(tried, confinement, [f"{confinement.home}/own", secret, str(port), str(os.getpid())])
    got = json.loads(output)
    if not got["own"]:
        return "a process could not read its own files."
    acts = {"secret": "reading a file", "connected": "opening a connection", "signalled": "signalling this one"}
    for name, act in acts.items():
        if got[name]:
            return f"it did not stop a process from {act}."
    return ""


def _scene(folder: Path) -> tuple[str, Confinement]:
    """A file that every user may read, and a confinement that does not grant it."""
    secret, uid = folder / "secret", user(0)
    secret.write_text("secret")
    secret.chmod(0o644)  # the tier alone must refuse it, and not its mode
    folder.chmod(0o711)
    made = [folder / name for name in ("home", "tmp", "view")]
    for place in made:
        place.mkdir(mode=0o700)
    (made[0] / "own").write_text("own")
    if uid:
        for place in (*made[:2], made[0] / "own"):
            os.chown(place, uid, uid)
    home, tmp, point = map(str, made)
    return str(secret), Confinement(home, tmp, point, protected=(str(secret),), uid=uid, network=Network.NONE)


class _Collector(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.output, self.ended = b"", asyncio.Event()

    def pipe_data_received(self, fd: int, data: Any) -> None:
        if fd == 1:
            self.output += data

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.ended.set()


async def _output(tried: MachineConfinement, confinement: Confinement, arguments: list[str]) -> bytes:
    collector = _Collector()
    program = sys.executable
    environment = {"PATH": os.defpath}
    made = await asyncio.get_running_loop().run_in_executor(
        threads,
        lambda: job(
            confinement,
            program,
            ["-I", "-S", "-c", _PROBE, *arguments],
            cwd=confinement.home,
            environment=environment,
            confines=tried,
        ),
    )
    transport, listener = await confined_start.start(lambda: collector, await launch(tried, made), made)
    gate = Gate(listener, AddressRules(Network.NONE), (), confinement.uid, lambda _: None)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await collector.ended.wait()
    finally:
        gate.close()
        transport.close()
    return collector.output


async def launch(tried: MachineConfinement, made: dict[str, Any]) -> confined_start.Launch:
    """How a child with this job is started."""
    if tried.tier is Tier.CONTAINER and _containers is not None:
        return container.launch(*_containers, made)
    if made["keeper"]:
        return confined_start.by_keeper
    if tried.tier is Tier.BUBBLEWRAP:
        words = await asyncio.get_running_loop().run_in_executor(threads, bubblewrap, made)
        return confined_start.by_program(words)
    kept = await isolation()
    words = resolved(PREFIXES[kept])
    if tried.view and kept is Isolation.PID_NAMESPACE_USER:
        words = (*words[:-1], "--keep-caps", words[-1])  # runner.py drops them when the view stands
    return confined_start.by_program(words)


def bubblewrap(made: dict[str, Any]) -> tuple[str, ...]:
    """Paths as in the view of runner.py. The interpreter that becomes the server is visible too."""
    program = shutil.which("bwrap") or "bwrap"
    words = [program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    if made["uid"]:
        words += [word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}")]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(_TMP_BYTES), "--perms", "1777", "--tmpfs", "/tmp"]  # noqa: S108  # its own
    for link, target in made["links"].items():
        words += ["--symlink", target, link]
    shown = {path: (source, "--bind" if writable else "--ro-bind") for path, source, writable in made["mounts"]}
    for path in (PYTHON[0], sys.base_prefix, RUNNER):
        shown.setdefault(path, (path, "--ro-bind"))
    mounted = set[str]()
    for path, (source, option) in sorted(shown.items()):
        if path.startswith(("/proc", "/dev", "/sys")):
            continue
        parents = [str(parent) for parent in reversed(Path(path).parents)]
        if not mounted.intersection(parents[1:]):
            # bubblewrap would make them for its own user only
            made_first = (parent for parent in parents[1:] if parent != "/tmp")  # noqa: S108  # it stands
            words += [word for parent in made_first for word in ("--perms", "0755", "--dir", parent)]
        words += [option, source, path]
        mounted.add(path)
    return (*words, "--remount-ro", "/", "--chdir", "/", "--")

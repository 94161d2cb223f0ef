"""Stdio servers in containers of a runtime that the operator names: podman, or a command line that understands docker's.

The container holds what bubblewrap would show: without an image, an empty root with the system's programs and what was
granted, mounted read-only, so no registry is needed and servers run the machine's programs. With an image, the image
replaces the system's programs. The first process is a keeper (see runner.run_container_init): it connects to a socket in a folder of
this worker, takes the pipes of the server from there, and ends with the worker; then the kernel ends everything in the
container. The runtime's own client has ended by then, so it takes no memory and no message passes through it."""

import asyncio
import fcntl
import marshal
import os
import resource
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

from ...core.errors import Fault, LaunchError
from . import keeper_client
from .confinement import CONTAINER_TMP, LOADER, PYTHON, RUNNER, is_of_the_system, threads
from .connect_gate import Network

#: seconds for a container to start; the machine may be busy with many
_PATIENCE: Final = 60.0
_QUESTION_SECONDS: Final = 20.0
#: seconds for its first process to connect, after the runtime reports that it runs
_CONNECT_SECONDS: Final = 20.0
#: of the folders that the container keeps in memory
_MEMORY: Final = "256m"
#: where a container finds the worker's socket
_PLACE: Final = "/run/mcpadmin"
_SOCKET: Final = "keeper"
_PREFIX: Final = "container-"
#: variables by which clients find their engine, storage and helpers
_VARIABLES: Final = ("PATH", "HOME", "USER", "XDG_", "DOCKER_", "CONTAINER", "REGISTRY_", "STORAGE_", "TMPDIR", "DBUS_")
_LIMITS: Final = {"NOFILE": 65_536, "NPROC": 32_768}
_MOST_WORDS: Final = 500
_PEER: Final = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Runtime:
    """`words`: the program, and options before its command. `image`: empty for the machine's own programs."""

    words: tuple[str, ...]
    image: str = ""

    @property
    def name(self) -> str:
        return os.path.basename(self.words[0])

    def program(self) -> str:
        """LaunchError if there is none."""
        found = shutil.which(self.words[0])
        if found is None:
            raise _problem(f"the program {self.words[0]} was not found.")
        return found


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """`roots`: it runs a folder instead of an image. `keeps_users`: it gives an ordinary user their own number inside."""

    roots: bool
    keeps_users: bool


def _problem(words: str) -> LaunchError:
    return LaunchError(Fault.SPAWN_FAILED, words)


async def abilities(runtime: Runtime) -> RuntimeFeatures:
    """What the help of its command `run` says. LaunchError if the runtime cannot be used."""
    code, output, errors = await _output([runtime.program(), *runtime.words[1:], "run", "--help"])
    if code:
        raise _problem(f"`{runtime.name} run --help` failed: {_short(errors or output)}")
    found = RuntimeFeatures(roots="--rootfs" in output, keeps_users="--rootfs" in output and "--userns" in output)
    if not runtime.image and not found.roots:
        raise _problem(f"{runtime.name} runs images only. Name one with MCPADMIN_CONTAINER_IMAGE.")
    return found


async def _output(command: list[str], seconds: float = _QUESTION_SECONDS) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
        cwd="/",
        start_new_session=True,
        umask=0o022,  # ours is private, and the server's user must pass the mount points that the runtime makes
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except BaseException as problem:  # also when cancelled: the client must not stay behind
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if isinstance(problem, TimeoutError):
            raise _problem(f"it did not answer within {seconds:.0f} s.") from None
        raise
    return process.returncode or 0, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


def _short(text: str) -> str:
    """The last error that a client printed, without its log lines' frames."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "")
    found = found[:_MOST_WORDS] or "it gave no reason"
    return found if found.endswith(".") else f"{found}."


class _Place:
    """What one container needs on this machine: a root with nothing but links and small files, and the folder of the
    socket. Locked while in use, so that the next start of the server removes what a killed worker left behind."""

    def __init__(self, parent: str, links: Mapping[str, str], files: Mapping[str, str]) -> None:
        self._stack = ExitStack()
        with _locked(parent):
            for name in os.listdir(parent):
                if name.startswith(_PREFIX):
                    _remove_unused(os.path.join(parent, name))
            self.folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._stack.enter_context(_locked(self.folder))
        self.root, self.socket_folder = f"{self.folder}/root", f"{self.folder}/socket"
        os.mkdir(self.root, 0o755)
        os.mkdir(self.socket_folder, 0o700)
        for link, target in links.items():
            os.makedirs(os.path.dirname(self.root + link), exist_ok=True)
            os.symlink(target, self.root + link)
        for path, text in files.items():
            os.makedirs(os.path.dirname(self.root + path), exist_ok=True)
            Path(self.root + path).write_text(text)
        for folder, *_ in os.walk(self.root):  # our umask made all of it private, and this is the server's root
            os.chmod(folder, 0o755)  # noqa: S103  # it holds links and public files
        for path in files:
            os.chmod(self.root + path, 0o644)

    def listening(self) -> socket.socket:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        folder = os.open(self.socket_folder, os.O_PATH | os.O_CLOEXEC)
        try:  # a path by its descriptor: those of sockets have at most 107 characters
            opened.bind(f"/proc/self/fd/{folder}/{_SOCKET}")
            opened.listen(1)
        except BaseException:  # whatever it is, the socket has no other owner
            opened.close()
            raise
        finally:
            os.close(folder)
        return opened

    def remove(self) -> None:
        self._stack.close()


@contextmanager
def _locked(folder: str, *, waits: bool = True) -> Iterator[None]:
    """OSError if another start or container has it and `waits` is not set."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield
    finally:
        os.close(opened)


def _remove_unused(folder: str) -> None:
    with suppress(OSError), _locked(folder, waits=False):  # in use, or gone meanwhile
        shutil.rmtree(folder, ignore_errors=True)


def command(runtime: Runtime, found: RuntimeFeatures, job: Mapping[str, Any], place: _Place) -> list[str]:
    """Runs the keeper. Nothing in it is secret: job and environment of the server reach it over its socket."""
    name = f"mcpadmin-{os.path.basename(place.folder).removeprefix(_PREFIX)}"
    words = [runtime.program(), *runtime.words[1:], "run", "--detach", "--rm", "--name", name]
    words += ["--network", "none" if job["network"] == Network.NONE else "host", "--read-only", "--log-driver", "none"]
    words += ["--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--cap-drop", "ALL"]
    words += ["--shm-size", _MEMORY, "--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={_MEMORY}"]  # noqa: S108  # its own
    words += ["--ulimit", f"nofile={_most('NOFILE')}", "--ulimit", f"nproc={_most('NPROC')}", "--workdir", "/"]
    uid, gid = os.geteuid(), os.getegid()
    words += ["--user", f"{uid}:{gid}"]
    if uid == 0:
        words += [word for kept in ("SETUID", "SETGID", "SETPCAP", "KILL") for word in ("--cap-add", kept)]
    elif found.keeps_users:
        words += ["--userns", "keep-id"]
    if found.roots:
        words += ["--read-only-tmpfs=false", "--no-hosts"]
    words += ["--volume", f"{place.socket_folder}:{_PLACE}:ro", "--volume", f"{job['tmp']}:{CONTAINER_TMP}"]
    mounts = {path: (source, writable) for path, source, writable in job["mounts"]}
    for path in (RUNNER, cache_from_source(RUNNER)):
        if os.path.exists(path):
            mounts.setdefault(path, (path, False))
    if not runtime.image:
        for path in (PYTHON[0], sys.base_prefix):
            mounts.setdefault(path, (path, False))
    for path, (source, writable) in sorted(mounts.items()):
        if path.startswith(("/proc", "/dev", "/sys")) or (runtime.image and is_of_the_system(path)):
            continue
        if ":" in path + source:
            raise _problem(
                f"{path} cannot be mounted in a container, because its name contains a colon. Grant the folder that contains it."
            )
        words += ["--volume", f"{source}:{path}{'' if writable else ':ro'}"]
    if runtime.image:
        return [*words, "--pull", "never", "--entrypoint", "python3", runtime.image, *_keeper()]
    return [*words, "--rootfs", place.root, PYTHON[0], *_keeper()]


def _keeper() -> tuple[str, ...]:
    return ("-I", "-S", "-c", LOADER, RUNNER, "container-init", f"{_PLACE}/{_SOCKET}")


def _most(name: str) -> str:
    """By default, runtimes request more than a worker may have; some lower their own limits first."""
    most = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
    most = _LIMITS[name] if most == resource.RLIM_INFINITY else min(most, _LIMITS[name])
    return f"{most}:{most}"


def launch(runtime: Runtime, found: RuntimeFeatures, job: Mapping[str, Any]) -> Callable[..., Any]:
    """A confined_start.Launch."""

    async def launched(
        factory: Callable[[], asyncio.SubprocessProtocol], descriptors: tuple[int, int, int]
    ) -> asyncio.SubprocessTransport:
        loop = asyncio.get_running_loop()
        place = await loop.run_in_executor(threads, _Place, job["mount_point"], job["links"], job["made_files"])
        with ExitStack() as undone:  # also when cancelled: without this socket the container ends
            undone.callback(place.remove)
            keeper_socket, pid = await _started(runtime, found, job, place)
            undone.callback(keeper_socket.close)
            await _mount_granted_folders(job, pid)
            pipes = keeper_client.Pipes()
            try:
                socket.send_fds(keeper_socket, [b"k"], [*descriptors[:2], *pipes.theirs])
            except OSError:
                pipes.close_ours()
                raise
            finally:
                pipes.close_theirs()
            undone.pop_all()
        return await keeper_client.attached(
            factory, keeper_socket, pipes, pid=pid, on_end=lambda: loop.run_in_executor(threads, place.remove)
        )

    return launched


async def _started(
    runtime: Runtime, found: RuntimeFeatures, job: Mapping[str, Any], place: _Place
) -> tuple[socket.socket, int]:
    """The keeper socket of a new container, and its first process as we see it."""
    loop = asyncio.get_running_loop()
    words = command(runtime, found, job, place)
    with place.listening() as listening:
        running = asyncio.ensure_future(_output(words, _PATIENCE))
        connecting = asyncio.ensure_future(loop.sock_accept(listening))
        try:
            code, output, errors = await running
            if code:
                raise _problem(f"{runtime.name} could not start a container: {_short(errors or output)}")
            async with asyncio.timeout(_CONNECT_SECONDS):
                keeper_socket, _ = await connecting
        except TimeoutError:
            silent = f"{runtime.name} started a container, but no process of mcpadmin runs in it."
            hint = f" Check that the image {runtime.image} has python3, version 3.8 or newer." if runtime.image else ""
            raise _problem(silent + hint) from None
        finally:
            connecting.cancel()
            running.cancel()
    pid, *_ = _PEER.unpack(keeper_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return keeper_socket, pid


async def _mount_granted_folders(job: Mapping[str, Any], pid: int) -> None:
    """Let the server's user stand for the owners of granted folders, where we are root. See runner.mount_granted_folders."""
    others = set(job["owned_by_others"])
    if not others:
        return
    mounts = [(path, source, writable, source in others) for path, source, writable in job["mounts"]]
    process = await asyncio.create_subprocess_exec(
        *(*PYTHON, "mount", str(pid), str(job["uid"])),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
    )
    _, errors = await process.communicate(marshal.dumps(mounts))
    if process.returncode:
        raise _problem(f"The granted folders could not be mounted: {_short(errors.decode('utf-8', 'replace'))}")

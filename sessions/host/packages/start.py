"""From a launcher's command to the program that actually runs: pinned, installed by us and verified."""

import asyncio
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from servers.audit.record import Event, ServerRef
from servers.configuration import Registration
from servers.enums import Ecosystem, PinState
from servers.models import PinnedPackage, Server
from servers.packages import commands, pins
from servers.packages.commands import PackageCommand
from servers.packages.pins import Pin
from sessions.host import directories
from sessions.host.db import Database
from sessions.host.packages import files, images, npm, pypi
from sessions.host.packages.problems import PackageChanged, failed
from sessions.host.packages.programs import Programs
from sessions.mcp.transports.registry import StdioSpec

#: installations of one worker at a time
AT_ONCE = 4
_LOCK_PAUSE = 0.1
_MANAGERS = {Ecosystem.NPM: npm, Ecosystem.PYPI: pypi, Ecosystem.IMAGE: images}
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@dataclass(frozen=True)
class PackageStart:
    """The package of one connection. `pin`: what the database had when its values were read. `server_id` is None for a
    draft, whose package is not pinned."""

    command: PackageCommand
    folder: Path
    seconds: float
    pin: Pin | None = None
    server_id: int | None = None
    server: ServerRef | None = None
    user: int | None = None


def package_of(
    source: Server | Registration, spec: object, folder: Path, seconds: float, server: Server | None
) -> PackageStart | None:
    """None if there is nothing to pin. Reads the pin: call it in a reader thread. `server`: its pin applies if it is
    for the same package."""
    if not isinstance(spec, StdioSpec):
        return None
    registered = commands.readable(source.command, source.arguments)
    command = commands.readable(spec.command, spec.args) if registered else None
    if registered is None or command is None:
        return None
    row = server.packages.filter(state=PinState.PINNED, requested=registered.requested).first() if server else None
    if row is None and source.working_directory and command.is_project_first and _is_in_project(command, spec):
        return None
    pin = Pin.of(row) if row else None
    user = spec.confinement.uid if spec.confinement else None
    start = PackageStart(replace(command, registered=registered.requested), folder, seconds, pin, user=user)
    if server is None or server is not source:
        return start
    return replace(start, server_id=server.pk, server=ServerRef.of(server))


def _is_in_project(command: PackageCommand, spec: StdioSpec) -> bool:
    """Whether the launcher would find the program in the working directory or in a folder above it that it may read. A
    package of that name in the registry is someone else's, or another version."""
    places = (f".bin/{command.executable or command.name}", f"{command.name}/package.json")
    at = Path(os.path.normpath(spec.cwd)) if spec.cwd else None
    folders = [at, *at.parents] if at is not None and at.is_absolute() else []
    if spec.confinement is not None:
        folders = [folder for folder in folders if folder == at or spec.confinement.allows(str(folder))]
    return any((folder / "node_modules" / place).exists() for folder in folders for place in places)


async def prepared(
    db: Database, start: PackageStart, spec: StdioSpec, on_line: Callable[[str], None]
) -> tuple[StdioSpec, Pin]:
    """Install what is pinned, or else pin what is installed. Raises LaunchError and TransportError."""
    programs = Programs(spec, on_line, start.seconds)
    async with _written(start.command), _alone(start.folder):
        pin, grown = start.pin, False
        for _ in range(3):
            try:
                found, folder, is_new = await _installed(programs, start, pin)
            except PackageChanged as problem:
                await _note_refusal(db, start, problem)
                raise
            grown |= is_new
            if start.server_id is None or found == pin:
                break
            pin = await _kept(db, start, found, pin)
            if pin == found:
                break  # else another worker was faster, and its pin must be installed
        if grown and start.server_id is not None:
            await db.read(partial(_prune, start.folder, start.server_id, folder))
    return run_by(start.command, spec, found, folder), found


def run_by(command: PackageCommand, spec: StdioSpec, pin: Pin, folder: Path) -> StdioSpec:
    """The installed program itself, without the launcher."""
    if pin.ecosystem == Ecosystem.IMAGE:
        return replace(spec, args=(*command.before, images.reference(pin), *command.arguments))
    if spec.confinement is not None:
        read = (*spec.confinement.read, *((pypi.interpreter(folder),) if pin.ecosystem == Ecosystem.PYPI else ()))
        spec = replace(spec, confinement=replace(spec.confinement, package=str(folder), read=read))
    path = (npm if pin.ecosystem == Ecosystem.NPM else pypi).program(command, folder)

    def environment() -> dict[str, str]:
        given = dict(spec.env())
        search = given.get("PATH") or os.environ.get("PATH", os.defpath)
        return given | {"PATH": f"{path.parent}{os.pathsep}{search}"}

    return replace(spec, command=str(path), args=command.arguments, env=environment)


async def installed(db: Database, programs: Programs, start: PackageStart, pin: Pin) -> Path:
    """The folder of a pin that need not be the server's own. Raises as `prepared`."""
    async with _written(start.command), _alone(start.folder):
        _, folder, is_new = await _installed(programs, start, pin)
        if is_new and start.server_id is not None:
            await db.read(partial(_prune, start.folder, start.server_id, folder))
    return folder


@asynccontextmanager
async def scratch(start: PackageStart) -> AsyncIterator[Path]:
    """A folder for looking something up."""
    async with _written(start.command), _one_of_few(), _alone(start.folder, ".lookup.lock"):
        for abandoned in start.folder.glob("lookup-*"):  # by a worker that was killed
            await asyncio.to_thread(files.remove, abandoned)
        folder = await asyncio.to_thread(_new_folder, start, "lookup-")
        try:
            yield folder
        finally:
            await asyncio.to_thread(files.remove, folder)


async def _installed(programs: Programs, start: PackageStart, pin: Pin | None) -> tuple[Pin, Path, bool]:
    """The last value: whether it was installed now. An installed package does not wait while others wait for a
    registry."""
    if pin is not None and (found := await asyncio.to_thread(_find, start.folder, pin)) is not None:
        if os.geteuid() == 0:  # the server's access can change which user it runs as
            await asyncio.to_thread(directories.hand_over, found, start.user)
        return pin, found, False
    async with _one_of_few():
        return (*await _newly_installed(programs, start, pin), True)


async def _newly_installed(programs: Programs, start: PackageStart, pin: Pin | None) -> tuple[Pin, Path]:
    folder = await asyncio.to_thread(_new_folder, start, "package-")
    try:
        done = await _MANAGERS[start.command.ecosystem].install(programs, start.command, pin, folder)
        if start.command.ecosystem != Ecosystem.IMAGE:
            run_by(start.command, programs.spec, done, folder)  # a package without the program is not pinned
        files.write(files.beside(folder, files.DIGEST), json.dumps({"digest": _digest(done)}))
    except BaseException:  # also when cancelled: an incomplete installation must not stay
        await asyncio.to_thread(files.remove, folder)
        raise
    return done, folder


async def _kept(db: Database, start: PackageStart, found: Pin, before: Pin | None) -> Pin:
    def events(kept: Pin) -> list[Event]:
        return [pins.kept_event(start.server, kept)] if kept == found and before is None and start.server else []

    assert start.server_id is not None  # noqa: S101  a draft keeps nothing
    return await db.persist(partial(pins.keep, start.server_id, found, before), events)


async def _note_refusal(db: Database, start: PackageStart, problem: PackageChanged) -> None:
    pin, server = start.pin, start.server
    if pin is None or server is None or start.server_id is None:
        return
    await db.persist(
        partial(pins.note_changed, start.server_id, pin, problem.name, problem.integrity, look=True),
        lambda news: [pins.changed_event(server, pin, problem.name, problem.integrity)] if news else [],
    )


# --- folders ------------------------------------------------------------------------------------------------------------
def _digest(pin: Pin) -> str:
    parts = (pin.ecosystem, pin.requested, pin.name, pin.version, pin.integrity, pin.lock)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _find(root: Path, pin: Pin) -> Path | None:
    digest = _digest(pin)
    return next((folder for folder in _folders(root) if _mark(folder) == digest), None)


def _folders(root: Path) -> Iterable[Path]:
    return sorted(path for path in root.glob("package-*") if path.is_dir()) if root.is_dir() else []


def _mark(folder: Path) -> str:
    try:
        return str(json.loads(files.read(files.beside(folder, files.DIGEST)))["digest"])
    except (OSError, ValueError, KeyError):
        return ""


def _new_folder(start: PackageStart, prefix: str) -> Path:
    """Owned by the server's user, if it has one."""
    start.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=start.folder))
    if start.user is not None:
        os.chown(folder, start.user, start.user)
        start.folder.chmod(0o711)  # its user can enter the folder, but not list its siblings
    return folder


def _prune(root: Path, server_id: int, new: Path) -> None:
    """Keep what is pinned, offered, or available for going back, and what was just installed."""
    kept = {_digest(Pin.of(row)) for row in PinnedPackage.objects.filter(server_id=server_id)}
    for folder in _folders(root):
        if folder != new and _mark(folder) not in kept:
            files.remove(folder)


@asynccontextmanager
async def _written(command: PackageCommand) -> AsyncIterator[None]:
    """Report a full disk, for example, as a problem of the machine and not as a bug."""
    try:
        yield
    except TimeoutError:  # which is an OSError too
        raise
    except OSError as problem:
        where = f": {problem.filename}" if problem.filename else ""
        words = f"The folder of the package could not be written: {problem.strerror or problem}{where}."
        raise failed(words) from problem


@asynccontextmanager
async def _alone(root: Path, lock: str = ".lock") -> AsyncIterator[None]:
    """One installation in a folder at a time, or one lookup, across all workers on this machine."""
    await asyncio.to_thread(root.mkdir, mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(root / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _one_of_few() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    async with _slots.setdefault(loop, asyncio.Semaphore(AT_ONCE)):
        yield

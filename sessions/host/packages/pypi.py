"""Packages of Python indexes. `uv` resolves them into a pylock.toml (PEP 751) and installs them into the server's
own environment, comparing every file with the hashes in it."""

import asyncio
import os
import re
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from servers.packages import locks
from servers.packages.commands import PackageCommand, pypi_extras
from servers.packages.pins import MOST_VERSION, Pin
from sessions.host.packages import files
from sessions.host.packages.problems import changed, failed, is_refused, not_readable, unavailable
from sessions.host.packages.programs import Output, Programs

LOCK = "pylock.toml"
ENVIRONMENT = "venv"
_PATIENCE = {"UV_HTTP_RETRIES": "1", "UV_NO_PROGRESS": "1"}
#: not links into the cache, which the server may write to
_COPIES = {"UV_LINK_MODE": "copy"}
#: pip's variables -> uv's, for commands in which pipx would have used pip
_OF_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
#: The output of a package's build is part of what uv prints. It must not make this search slow: each part has a limit, and
#: only so many characters are searched.
_MOST_SEARCHED = 200_000
_CHANGED = re.compile(
    r"Hash mismatch for `([^`=@ ]{1,200})[^`]{0,200}`.{0,200}?Expected:\s{0,50}"
    r"(?P<wanted>(?:sha256:\w{1,64}\s{0,50}){1,500})Computed:\s{0,50}(?P<got>sha256:\w{1,64})",
    re.DOTALL,
)
_AWAY = re.compile(
    r"Failed to fetch|error sending request|tcp connect|dns error|timed out|Connection refused|network connectivity"
    r"|invalid peer certificate|offline|HTTP status (?:server|client) error|Could not connect",
    re.IGNORECASE,
)


async def install(programs: Programs, command: PackageCommand, pin: Pin | None, folder: Path) -> Pin:
    await _make_environment(programs, command, folder)
    lock = pin.lock if pin else ""
    if not lock:
        found = await resolve(programs, command, folder, exactly(command, pin) if pin else "", build=True)
        if pin is not None and pin.integrity not in _hashes_of(found.lock, pin.name):
            raise changed(command, pin, pin.name, pin.version, found.integrity)
        lock = found.lock
    files.write(folder / "requirements.txt", _requirements(lock))
    arguments = ("pip", "install", "--require-hashes", "--no-deps", "-r", "requirements.txt", *_python(folder))
    output = await _uv(programs, command, folder, *arguments)
    _require(output, command, pin, lock)
    if pin is not None:
        return replace(pin, lock=lock, dependencies=_count(lock))
    return _pin(command, lock, _tags(command, folder))


async def resolve(
    programs: Programs, command: PackageCommand, folder: Path, instead: str = "", *, build: bool = False
) -> Pin:
    """What would be installed, with its lock file. Without `build` nothing of any package runs."""
    if not (folder / ENVIRONMENT).exists():
        await _make_environment(programs, command, folder)
    wanted = (instead or command.requirements[0], *command.requirements[1:])
    files.write(folder / "requirements.in", "\n".join(wanted) + "\n")
    (folder / LOCK).unlink(missing_ok=True)
    output = await _uv(
        programs,
        command,
        folder,
        *("pip", "compile", "requirements.in", "--format", "pylock.toml", "-o", LOCK, "--quiet", "--no-header"),
        *(() if build else ("--no-build",)),
        *_python(folder),
    )
    _require(output, command, None, "")
    try:
        return _pin(command, files.read(folder / LOCK), frozenset())
    except OSError:
        raise not_readable(command, LOCK) from None


def exactly(command: PackageCommand, pin: Pin) -> str:
    """The pinned version, with the extras that were asked for."""
    return f"{pin.name}{pypi_extras(command.requirements[0])}=={pin.version}"


def program(command: PackageCommand, folder: Path) -> Path:
    programs = folder.resolve() / ENVIRONMENT / "bin"
    path = programs / command.executable
    if not path.is_file():
        names = sorted(
            name for name in os.listdir(programs) if not name.startswith(("python", "activate", "deactivate"))
        )
        offers = f" It has {', '.join(names[:20])}." if names else ""
        raise failed(f"{command.name} has no program named {command.executable}.{offers}")
    return path


async def _make_environment(programs: Programs, command: PackageCommand, folder: Path) -> None:
    python = ("--python", command.python) if command.python else ()
    output = await _uv(
        programs, command, folder, "venv", "--quiet", "--no-project", *python, ENVIRONMENT, of_index=False
    )
    _require(output, command, None, "")
    # Recorded before package code runs, which could redirect the link.
    python_itself = await asyncio.to_thread(os.path.realpath, folder / ENVIRONMENT / "bin" / "python")
    files.write(files.beside(folder, files.INTERPRETER), python_itself)


def interpreter(folder: Path) -> str:
    """The installation of the interpreter, outside the folder."""
    return str(Path(files.read(files.beside(folder, files.INTERPRETER))).parent.parent)


async def _uv(
    programs: Programs, command: PackageCommand, folder: Path, *arguments: str, of_index: bool = True
) -> Output:
    variables = _PATIENCE | _COPIES
    if command.launcher.startswith("pipx"):
        given = programs.spec.env()
        variables |= {ours: given[theirs] for theirs, ours in _OF_PIP.items() if theirs in given}
    options = command.options if of_index else ()
    return await programs.run(programs.beside("uv"), *arguments, *options, folder=folder, **variables)


def _python(folder: Path) -> tuple[str, str]:
    return "--python", str(folder / ENVIRONMENT / "bin" / "python")


def _packages(lock: str) -> list[dict[str, Any]]:
    return list(tomllib.loads(lock).get("packages", []))


def _requirements(lock: str) -> str:
    """The lock file as requirements: a stable format, while uv calls installing from a pylock.toml experimental."""
    lines = []
    for package in _packages(lock):
        marker = f" ; {package['marker']}" if "marker" in package else ""
        hashes = "".join(f" --hash=sha256:{file['hashes']['sha256']}" for file in locks.files(package))
        lines.append(f"{package['name']}=={package['version']}{marker}{hashes}")
    return "\n".join(lines) + "\n"


def _pin(command: PackageCommand, lock: str, tags: frozenset[str]) -> Pin:
    try:
        own = next(package for package in _packages(lock) if package["name"] == canonicalize_name(command.name))
        file = _installed(own, tags)
        version, integrity = str(own["version"]), f"sha256:{file['hashes']['sha256']}"
        locks.locked(command.ecosystem, lock)
    except (StopIteration, KeyError, IndexError, tomllib.TOMLDecodeError):
        words = f"The index provides no hash for {command.name}, so it cannot be pinned."
        raise failed(words) from None
    except (AttributeError, TypeError, RecursionError):  # code of a package ran beside this file
        raise not_readable(command, LOCK) from None
    if len(version) > MOST_VERSION:
        raise not_readable(command, LOCK)
    return Pin(command.ecosystem, command.requested, command.name, version, integrity, lock, _count(lock))


def _installed(package: dict[str, Any], tags: frozenset[str]) -> dict[str, Any]:
    """The wheel with the tags of the installed one, or else the first file: a wheel, or the source."""
    found = locks.files(package)
    for file in found:
        name = file.get("name") or str(file.get("url") or file.get("path") or "").rpartition("/")[2]
        if name.endswith(".whl"):
            python, abi, platform = name.removesuffix(".whl").split("-")[-3:]
            mine = {f"{p}-{a}-{f}" for p in python.split(".") for a in abi.split(".") for f in platform.split(".")}
            if mine == tags:
                return file
    return found[0]


def _tags(command: PackageCommand, folder: Path) -> frozenset[str]:
    own = canonicalize_name(command.name).replace("-", "_")
    for path in (folder / ENVIRONMENT / "lib").glob("python*/site-packages/*.dist-info/WHEEL"):
        if canonicalize_name(path.parent.name.partition("-")[0]).replace("-", "_") == own:
            with suppress(OSError):
                lines = files.read(path).splitlines()
                return frozenset(line.partition(":")[2].strip() for line in lines if line.startswith("Tag:"))
    return frozenset()


def _hashes_of(lock: str, name: str) -> set[str]:
    return {
        one
        for package in locks.locked("pypi", lock)
        if package.name == canonicalize_name(name)
        for one in package.hashes
    }


def hashes_of(pin: Pin) -> set[str]:
    """The hashes of all files of the package itself."""
    return _hashes_of(pin.lock, pin.name)


def _count(lock: str) -> int:
    return max(0, len(_packages(lock)) - 1)


def _require(output: Output, command: PackageCommand, pin: Pin | None, lock: str) -> None:
    if output.code == 0:
        return
    text = output.text
    if found := _CHANGED.search(text, 0, _MOST_SEARCHED):
        name, version = found[1], ""
        for one in locks.locked("pypi", lock) if lock else []:
            version = one.version if one.name == canonicalize_name(name) else version
        raise changed(
            command,
            pin,
            command.name if canonicalize_name(name) == canonicalize_name(command.name) else name,
            version,
            found["got"],
        )
    if _AWAY.search(text) or is_refused(text):
        raise unavailable(command, pin, "", text)
    raise failed(f"uv ended with exit code {output.code}.", text)

"""Packages of npm registries. `npm ci` installs exactly what a lock file says and compares every file with its hash."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from servers.packages import locks
from servers.packages.commands import PackageCommand, npm_parts
from servers.packages.pins import MOST_INTEGRITY, MOST_VERSION, Pin
from sessions.host.packages import files
from sessions.host.packages.problems import (
    changed,
    failed,
    is_refused,
    not_readable,
    unavailable,
)
from sessions.host.packages.programs import Output, Programs

LOCK = "package-lock.json"
_FLAGS = (
    *("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--package-lock=true", "--progress=false"),
    *("--omit=dev", "--global=false", "--workspaces=false", "--lockfile-version=3"),
)
#: by default, npm waits ten seconds before it retries a registry that did not answer
_PATIENCE = {"npm_config_fetch_retries": "1", "npm_config_fetch_retry_mintimeout": "1000"}
_CHANGED = re.compile(r"wanted (\S+) but got (.+?)\. \(|wanted (\S+) but got (.+)")
_CODE = re.compile(r"\bcode (E[A-Z0-9_]+)")
_AWAY = {
    *("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ENETUNREACH", "EHOSTUNREACH"),
    *(
        "ERR_SOCKET_TIMEOUT",
        "ENETDOWN",
        "E500",
        "E502",
        "E503",
        "E504",
        "ENOTCACHED",
        "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    ),
    *("SELF_SIGNED_CERT_IN_CHAIN", "CERT_HAS_EXPIRED", "EPROTO", "E401", "E403"),
}


async def install(programs: Programs, command: PackageCommand, pin: Pin | None, folder: Path) -> Pin:
    _prepare(programs, folder)
    lock = pin.lock if pin else ""
    if pin is not None and not lock:  # only the package itself is known: compare before anything of it runs
        found = await resolve(programs, command, folder, f"{pin.name}@{pin.version}")
        if found.integrity != pin.integrity:
            raise changed(command, pin, pin.name, pin.version, found.integrity)
        lock = found.lock
    if lock:
        _write(folder, json.loads(lock)["packages"][""].get("dependencies", {}), lock)
        output = await _npm(programs, "ci", command, folder)
        _require(output, command, pin, lock)
        return replace(pin, lock=lock, dependencies=_count(lock)) if pin else _pin(command, lock)
    _write(folder, _wanted(command))
    output = await _npm(programs, "install", command, folder)
    _require(output, command, pin, "")
    return _pin(command, _read(folder, command))


async def resolve(programs: Programs, command: PackageCommand, folder: Path, instead: str = "") -> Pin:
    """What would be installed, with its lock file. Runs nothing of any package. `instead`: another requirement for
    the package itself."""
    _prepare(programs, folder)
    wanted = _wanted(command)
    if instead:
        wanted |= dict([npm_parts(instead)])
    (folder / LOCK).unlink(missing_ok=True)
    _write(folder, wanted)
    output = await _npm(programs, "install", command, folder, "--package-lock-only", "--ignore-scripts")
    _require(output, command, None, "")
    return _pin(command, _read(folder, command))


async def newest(programs: Programs, command: PackageCommand, folder: Path) -> tuple[str, str]:
    """The version and hash that the registry has for the requested package. One request."""
    return await offered(programs, command, folder, command.requirements[0])


async def offered(programs: Programs, command: PackageCommand, folder: Path, requirement: str) -> tuple[str, str]:
    _prepare(programs, folder)
    name, version = npm_parts(requirement)
    output = await _npm(programs, "view", command, folder, f"{name}@{version}", "name", "version", "dist", "--json")
    _require(output, command, None, "")
    try:
        found = json.loads("\n".join(output.stdout))
        found = found[-1] if isinstance(found, list) else found
        dist = found.get("dist", {})
        integrity = dist.get("integrity") or found.get("dist.integrity") or ""
        return str(found["version"]), str(integrity)
    except (ValueError, KeyError, IndexError, TypeError):
        raise not_readable(command, "npm view") from None


def program(command: PackageCommand, folder: Path) -> Path:
    """The file to run: the one that was named, the package's only one, or the one with the package's name."""
    folder = folder.resolve()
    links = folder / "node_modules" / ".bin"
    if command.executable:
        if not (links / command.executable).exists():
            raise failed(f"{command.name} has no program named {command.executable}.")
        return links / command.executable
    try:
        about = json.loads(files.read(folder / "node_modules" / command.name / "package.json"))
    except (OSError, ValueError, RecursionError):
        raise failed(f"{command.name} was not installed completely.") from None
    bins = about.get("bin") if isinstance(about, dict) else None
    own = command.name.rpartition("/")[2]
    programs = {own: bins} if isinstance(bins, str) else bins if isinstance(bins, dict) else {}
    names = list(programs)
    name = own if own in names else names[0] if len(set(map(str, programs.values()))) == 1 else ""
    if not name or not (links / name).exists():
        offers = f" It has {', '.join(sorted(names))}: name one with -p {command.name} PROGRAM." if names else ""
        raise failed(f"{command.name} has no program with the same name as the package.{offers}")
    return links / name


def _prepare(programs: Programs, folder: Path) -> None:
    """npm reads an .npmrc beside the package.json that it works on: that of the server's directory applies here too."""
    given = Path(programs.spec.cwd or "/") / ".npmrc"
    if given.is_file() and not (folder / ".npmrc").exists():
        (folder / ".npmrc").symlink_to(given)


def _wanted(command: PackageCommand) -> dict[str, str]:
    return dict(npm_parts(one) for one in command.requirements)


def _write(folder: Path, wanted: dict[str, str], lock: str = "") -> None:
    files.write(folder / "package.json", json.dumps({"private": True, "dependencies": wanted}))
    if lock:
        files.write(folder / LOCK, lock)


async def _npm(programs: Programs, verb: str, command: PackageCommand, folder: Path, *more: str) -> Output:
    arguments = (verb, *more, *_FLAGS, *command.options)
    return await programs.run(programs.beside("npm"), *arguments, folder=folder, **_PATIENCE)


def _read(folder: Path, command: PackageCommand) -> str:
    try:
        return files.read(folder / LOCK)
    except OSError:
        raise not_readable(command, LOCK) from None


def _pin(command: PackageCommand, lock: str) -> Pin:
    try:
        packages: dict[str, Any] = json.loads(lock)["packages"]
        entry: dict[str, Any] = packages[f"node_modules/{command.name}"]
        version, integrity = str(entry["version"]), str(entry.get("integrity") or "")
        whole = "" in packages and all(isinstance(one, dict) for one in packages.values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise not_readable(command, LOCK) from None
    if not whole or len(version) > MOST_VERSION or len(integrity) > MOST_INTEGRITY:  # code of the package ran beside it
        raise not_readable(command, LOCK)
    if not integrity:
        raise failed(f"The registry provides no hash for {command.name}, so it cannot be pinned.")
    return Pin(
        command.ecosystem,
        command.requested,
        command.name,
        version,
        integrity,
        lock,
        _count(lock),
    )


def _count(lock: str) -> int:
    """Packages besides the package itself."""
    return max(0, len([place for place in json.loads(lock)["packages"] if place]) - 1)


def _require(output: Output, command: PackageCommand, pin: Pin | None, lock: str) -> None:
    if output.code == 0:
        return
    text = output.text
    code = found[1] if (found := _CODE.search(text)) else ""
    if code == "EINTEGRITY":
        wanted, got = _hashes(text)
        name, version = _named(lock, wanted) or (command.name, pin.version if pin else "")
        raise changed(command, pin, name, version, got)
    if code in _AWAY or "network" in text.lower() or is_refused(text):
        raise unavailable(command, pin, code, text)
    raise failed(f"npm ended with exit code {output.code}{f' ({code})' if code else ''}.", text)


def _hashes(text: str) -> tuple[str, str]:
    found = _CHANGED.search(text)
    if found is None:
        return "", ""
    wanted, got = (found[1], found[2]) if found[1] else (found[3], found[4])
    return wanted, got.split(" ")[0].rstrip(".")


def _named(lock: str, integrity: str) -> tuple[str, str] | None:
    with suppress(ValueError):
        for one in locks.locked("npm", lock) if lock else []:
            if integrity and integrity in one.hashes:
                return one.name, one.version
    return None

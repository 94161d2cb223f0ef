"""What a stdio server may access: from its registration, the settings and this machine to its confinement."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS

from servers.configuration import Registration
from servers.enums import TransportKind
from servers.models import Server
from servers.registration.inherited import inherited
from servers.registration.resolved_values import LaunchValues
from sessions.host import directories
from sessions.host.launch_problem import not_started
from sessions.mcp.core.limits import KIB
from sessions.mcp.transports import stdio

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
#: threads that each allowed process may have, on average
THREADS = 4
MIB = 1024 * KIB
#: of memory, with which an interpreter can at least start
SPARE_MIB = 256


def with_working_directory(source: Server | Registration, values: LaunchValues, private: Path) -> LaunchValues:
    """Set the working directory of a stdio server: the one in its registration, or else a private one."""
    if source.transport != TransportKind.STDIO or values.reached.working_directory:
        return values
    try:
        directory = str(directories.made(private))
    except OSError as problem:
        words = (
            f"The private working directory of the server could not be created: {problem.strerror}: {problem.filename}."
        )
        raise not_started(words) from problem
    return replace(values, reached=replace(values.reached, working_directory=directory))


def confinement_of(
    source: Server | Registration,
    values: LaunchValues,
    private: Path,
    folders: Callable[..., directories.Folders],
    number: int,
    *,
    draft: bool = False,
) -> stdio.Confinement | None:
    """None if the server is not a child process, or if the operator turned confinement off. `private`: its own working
    directory, used or not. `number` and `draft` determine its user, if we are root."""
    if source.transport != TransportKind.STDIO or settings.STDIO_UNCONFINED:
        return None
    directory = os.path.normpath(values.reached.working_directory)
    folder_is_private = directory == str(private)  # another folder beside it is another server's
    protected = own_paths()
    roots = [unquote(urlsplit(root["uri"]).path) for root in source.roots]
    # A root that contains mcpadmin's own files, or leads to anything but files, remains a mere hint to the server.
    roots = [
        root
        for root in roots
        if "\0" not in root and not stdio.overlaps(root, protected) and not stdio.is_interface(root)
    ]
    named = (*source.readable_paths, *roots)
    changed = (*source.writable_paths, *(() if folder_is_private else (directory,)))
    if closed := next((path for path in (*named, *changed) if stdio.is_interface(path)), None):
        words = f"{closed} leads to processes, settings or devices of the machine, which no server may access. Grant the folder that the server works with."
        raise not_started(words)
    program = _program()
    if mine := next((path for path in changed if stdio.overlaps(path, program)), None):
        words = f"{mine} contains mcpadmin's own program, which no server may change. Grant a smaller folder, or this one for reading only."
        raise not_started(words)
    user = stdio.user(number, draft=draft)
    if user is not None and not stdio.stands_for_owners() and any(map(_is_ours, (*named, *changed))):
        user = None  # only our own user reaches these files
    try:
        own = folders(user, reachable=not stdio.has_view())
    except OSError as problem:
        words = f"The private folders of the server could not be created: {problem.strerror}: {problem.filename}."
        raise not_started(words) from problem
    files, hosts = _of_the_operator()
    return stdio.Confinement(
        home=str(own.home),
        tmp=str(own.tmp),
        mount_point=str(own.mount_point),
        work=directory if folder_is_private else "",
        read=(*named, *files),
        write=changed,
        protected=protected,
        uid=user,
        network=stdio.Network(source.network_access),
        hosts=(*_hosts(source), *hosts),
        limits=_process_limits(),
    )


def _hosts(source: Server | Registration) -> list[stdio.Host]:
    try:
        return [*map(stdio.Host.parsed, source.network_hosts)]
    except ValueError as problem:  # stored by a version that accepted it
        words = f"The hosts under Access in the server's settings cannot be used: {problem}"
        raise not_started(words) from problem


def own_paths() -> tuple[str, ...]:
    """Keys, database and checkpoints, wherever the operator keeps them."""
    files = [settings.DATA_DIR, settings.KEYRING_FILE, settings.CHECKPOINT_KEY_FILE, settings.CHECKPOINT_FILE]
    database = settings.DATABASES[DEFAULT_DB_ALIAS]
    path = Path(str(database["NAME"]))
    if database["ENGINE"].endswith("sqlite3") and path.is_absolute() and not path.is_relative_to(settings.DATA_DIR):
        files += [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
    return tuple(map(str, files))


def _program() -> list[str]:
    """The folders of our own code and of the interpreter's library that this process could change. At the next start it
    runs them with the keys."""
    places = [
        str(settings.BASE_DIR),
        *([sys.prefix] if sys.prefix != sys.base_prefix else []),
        os.path.dirname(os.__file__),
    ]
    return [place for place in places if os.access(place, os.W_OK)]


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _of_the_operator() -> tuple[list[str], list[stdio.Host]]:
    """Files and hosts that settings and inherited variables name: certificates, proxies, package mirrors."""
    try:
        files, hosts = [], [*map(stdio.Host.parsed, settings.STDIO_HOSTS)]
    except ValueError as problem:
        words = f"The setting MCPADMIN_STDIO_HOSTS cannot be used: {problem}"
        raise not_started(words) from problem
    for value in inherited().values():
        if value.startswith("/") and Path(value).exists():
            files.append(value)
            continue
        with suppress(ValueError):
            parts = urlsplit(value)
            if parts.hostname and parts.scheme in _PORTS:
                name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
                hosts.append(stdio.Host.parsed(f"{name}:{parts.port or _PORTS[parts.scheme]}"))
    return files, hosts


def _process_limits() -> dict[str, int]:
    """By the names of setrlimit. Memory and processes of the whole server are measured too (see processes.py), which says
    what was exceeded; these limits stop what grows faster than it is measured. NPROC counts threads."""
    limits = {"CORE": 0, "NOFILE": settings.STDIO_OPEN_FILES, "FSIZE": settings.STDIO_FILE_MIB * MIB}
    if settings.STDIO_MEMORY_MIB:
        limits["DATA"] = (2 * settings.STDIO_MEMORY_MIB + SPARE_MIB) * MIB
    if settings.STDIO_PROCESSES:
        limits["NPROC"] = settings.STDIO_PROCESSES * THREADS
    return limits

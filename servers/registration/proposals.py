"""What common stdio servers need, read from their command lines: proposed when one is added, granted by people only."""

import itertools
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from servers.packages.commands import readable
from servers.validators import launcher, main_word, program_name, started_words


@dataclass(frozen=True)
class Proposal:
    """`kind`: the kind of server, in words. Empty fields propose nothing."""

    kind: str
    readable_paths: tuple[str, ...] = ()
    writable_paths: tuple[str, ...] = ()
    network_hosts: tuple[str, ...] = ()

    @property
    def grants_engine(self) -> bool:
        """Whether it grants the socket of a container engine, which defeats any confinement."""
        return any(path.endswith(".sock") for path in self.writable_paths)


def proposed(command: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> Proposal | None:
    """The proposal for a command line; None if nothing is known, or if nothing beyond the defaults is needed."""
    if variables and (path := variables.get("MEMORY_FILE_PATH", "")).startswith("/"):
        return Proposal("a memory server", writable_paths=(posixpath.dirname(path),))
    words = started_words(command, arguments)
    names, given = _package(words)
    make = next((make for pattern, make in _PACKAGES if any(pattern.search(name) for name in names)), None)
    if make is None:
        make, given = _PROGRAMS.get(program_name(words[0])), words[1 : main_word(words) or None]
    proposal = make(given) if make is not None else None
    return proposal if proposal is not None and proposal != Proposal(proposal.kind) else None


def _package(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The names of what is started, and its arguments, which do not help to identify it."""
    if (found := readable(words[0], words[1:])) is not None:
        return (found.name, found.executable), found.arguments
    at = main_word(words) if launcher(words[0], words[1:]) or _INTERPRETERS.fullmatch(program_name(words[0])) else 0
    return (words[0], words[at]), words[at + 1 :]


def _folders(arguments: Sequence[str]) -> tuple[str, ...]:
    return tuple(argument for argument in arguments if argument.startswith("/"))


def _files(arguments: Sequence[str]) -> Proposal:
    return Proposal("a file server", writable_paths=_folders(arguments))


def _git(arguments: Sequence[str]) -> Proposal:
    return Proposal("a Git server", writable_paths=_folders(_values(arguments, "--repository", "-r")))


def _sqlite(arguments: Sequence[str]) -> Proposal:
    """Proposes the folder: SQLite writes a journal next to the database."""
    files = _folders(_values(arguments, "--db-path", "--db")) or _folders(arguments)
    return Proposal("a SQLite server", writable_paths=tuple(posixpath.dirname(path) for path in files))


def _database(arguments: Sequence[str]) -> Proposal:
    hosts = []
    for argument in arguments:
        try:
            parts = urlsplit(argument)
            port = parts.port
        except ValueError:
            continue
        if parts.scheme in _DATABASE_PORTS and parts.hostname:
            hosts.append(f"{parts.hostname}:{port or _DATABASE_PORTS[parts.scheme]}")
    return Proposal("a database server", network_hosts=tuple(hosts))


def _browser(arguments: Sequence[str]) -> Proposal:
    programs = _folders(_values(arguments, "--executable-path", "--executablePath"))
    return Proposal("a browser server", readable_paths=tuple(posixpath.dirname(path) for path in programs))


def _project(arguments: Sequence[str]) -> Proposal:
    """uv keeps a project's environment in its folder."""
    return Proposal("a project run by uv", writable_paths=_folders(_values(arguments, "--directory", "--project")))


def _docker(arguments: Sequence[str]) -> Proposal:
    return Proposal("a container", writable_paths=("/var/run/docker.sock",))


def _values(arguments: Sequence[str], *options: str) -> list[str]:
    """Values given as `--option VALUE` or `--option=VALUE`."""
    found = [after for option, after in itertools.pairwise(arguments) if option in options]
    return found + [word.partition("=")[2] for word in arguments if word.partition("=")[0] in options and "=" in word]


_DATABASE_PORTS: Final = {"postgres": 5432, "postgresql": 5432, "mysql": 3306, "mongodb": 27017, "redis": 6379}
_INTERPRETERS: Final = re.compile(r"node|tsx|ts-node|bun|(?:python|pypy)[\d.]*t?")
_Make = Callable[[Sequence[str]], Proposal]
_PACKAGES: Final[tuple[tuple[re.Pattern[str], _Make], ...]] = (
    (re.compile(r"server-filesystem|mcp-filesystem"), _files),
    (re.compile(r"mcp-server-git\b|mcp_server_git\b|server-git\b"), _git),
    (re.compile(r"mcp-server-sqlite|mcp_server_sqlite|server-sqlite"), _sqlite),
    (
        re.compile(r"server-postgres|postgres-mcp|server-redis|mcp-mongo|mongodb-mcp|mysql-mcp|mcp-server-mysql"),
        _database,
    ),
    (re.compile(r"playwright|puppeteer|chrome-devtools-mcp"), _browser),
)
#: podman needs no socket: nothing runs in the background
_PROGRAMS: Final[dict[str, _Make]] = {"uv": _project, "docker": _docker}

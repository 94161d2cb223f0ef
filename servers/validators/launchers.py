"""Which program a command line ultimately starts. Launchers fetch a server from a registry before they start it, so the
first start takes as long as the installation."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

#: program: the leading arguments with which it fetches something; an empty tuple means any
_LAUNCHERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "npx": ((),),
    "bunx": ((),),
    "pnpx": ((),),
    "uvx": ((),),
    "dnx": ((),),
    "deno": ((),),
    "jbang": ((),),
    "npm": (("exec",), ("x",), ("create",), ("init",)),
    "pnpm": (("dlx",), ("exec",)),
    "yarn": (("dlx",),),
    "bun": (("x",),),
    "uv": (("tool", "run"), ("run",)),
    "pipx": (("run",),),
    "docker": (("run",), ("container", "run"), ("compose", "run")),
    "podman": (("run",), ("container", "run")),
    "nerdctl": (("run",),),
    "dotnet": (("tool", "exec"), ("run",)),
    "go": (("run",),),
    "cargo": (("run",),),
    "nix": (("run",),),
}
_VERBS = frozenset(word for uses in _LAUNCHERS.values() for words in uses for word in words)
#: options before a launcher's subcommand that take a value
_VALUES_BEFORE: dict[str, frozenset[str]] = {
    "uv": frozenset({"--directory", "--project", "--config-file", "--cache-dir"}),
    "npm": frozenset({"--prefix", "-C", "--registry", "--cache", "--userconfig"}),
    "pnpm": frozenset({"--dir", "-C"}),
    "yarn": frozenset({"--cwd"}),
    "bun": frozenset({"--cwd"}),
    "docker": frozenset(
        {
            *("--context", "-c", "--host", "-H", "--config", "--log-level", "-l"),
            *("--file", "-f", "--project-name", "-p", "--project-directory", "--env-file", "--profile"),
        }
    ),
    "podman": frozenset({"--connection", "-c", "--url", "--log-level", "--root"}),
    "go": frozenset({"-C"}),
    "cargo": frozenset({"-C", "--config"}),
}
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash", "ksh"})
#: shell options: the next operand is a script, also combined with other letters as in `-lc`; and options with a value
_SCRIPT, _SHELL_VALUE = re.compile(r"-[A-Za-z]*c[A-Za-z]*"), re.compile(r"[-+][A-Za-z]*[oO]|--rcfile|--init-file")
#: options that confirm for npx and `npm exec`
_YES = frozenset({"-y", "--yes", "--yes=true"})
#: npx options before the package that take a value
_WITH_VALUE = frozenset({"-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--cache", "--prefix"})


def launcher(command: str, arguments: Sequence[str]) -> str:
    """The launcher as people name it ("npx", "docker run"), or "" if the program is started directly."""
    program, *rest = started_words(command, arguments)
    program = program_name(program)
    given = [rest[index] for index in _operands(program, rest)]
    for words in _LAUNCHERS.get(program, ()):
        if tuple(given[: len(words)]) == words:
            return " ".join((program, *words))
    return ""


def asks_before_installing(command: str, arguments: Sequence[str]) -> bool:
    """Whether npx may wait for confirmation of the installation, which no one can give."""
    program, *rest = started_words(command, arguments)
    program = program_name(program)
    if program == "npm" and rest[:1] in (["exec"], ["x"]):
        rest = rest[1:]
    elif program != "npx":
        return False
    options = iter(rest)
    for option in options:
        if option in _YES or option in ("--no", "--no-install", "--help", "--version"):
            return False
        if option in _WITH_VALUE:
            next(options, None)
        elif not option.startswith("-") or option == "--":
            break
    return bool(rest)


def started_words(command: str, arguments: Sequence[str]) -> list[str]:
    """The actual command line: what `env` or a shell starts in turn."""
    words = _behind_env(command, arguments)
    at = _script_at(words)
    try:
        inner = shlex.split(words[at]) if at is not None else []
    except ValueError:
        return words
    return started_words(inner[0], inner[1:]) if inner else words


def main_word(words: Sequence[str]) -> int:
    """The index of the package, script or module that a launcher or interpreter is given: the first word that is
    neither an option nor a launcher's subcommand. 0, the program itself, if there is none."""
    places = _operands(program_name(words[0]), words[1:])
    return next((index + 1 for index in places if words[index + 1] not in _VERBS), 0)


def shell_script(command: str, arguments: Sequence[str]) -> int | None:
    """The index of the script of `sh -c` or `bash -lc` in the arguments, also after `env`."""
    words = _behind_env(command, arguments)
    at = _script_at(words)
    return len(arguments) - len(words) + at if at is not None else None


def program_name(command: str) -> str:
    """`npx` for `/usr/bin/npx` and for `npx.cmd`."""
    return PurePosixPath(command).name.lower().removesuffix(".exe").removesuffix(".cmd")


def _behind_env(command: str, arguments: Sequence[str]) -> list[str]:
    words = [command, *arguments]
    while program_name(words[0]) in ("env", "nice", "exec", "command") and words[1:]:
        words = words[1:]
        while words and (words[0].startswith("-") or "=" in words[0]):
            words = words[1:]
        words = words or [""]
    return words


def _script_at(words: Sequence[str]) -> int | None:
    if program_name(words[0]) not in _SHELLS:
        return None
    at, is_script = 1, False
    while at < len(words) and words[at].startswith(("-", "+")):
        is_script |= bool(_SCRIPT.fullmatch(words[at]))
        at += 2 if _SHELL_VALUE.fullmatch(words[at]) else 1
    return at if is_script and at < len(words) else None


def _operands(program: str, words: Sequence[str]) -> list[int]:
    """Indexes of the words that are neither options nor the values of known options."""
    found, skip = [], False
    for index, word in enumerate(words):
        if not skip and not word.startswith("-"):
            found.append(index)
        skip = not skip and word in _VALUES_BEFORE.get(program, ())
    return found

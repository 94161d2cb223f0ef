"""Programs that fetch a server from a registry before they start it: their first start takes as long as the installation."""

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

#: program: the first words of its arguments after which it fetches something; an empty tuple stands for any
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
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ash", "ksh"})
#: what says yes to npx, and to `npm exec`
_YES = frozenset({"-y", "--yes", "--yes=true"})
#: of npx: options before the package that are followed by a value
_WITH_VALUE = frozenset({"-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--cache", "--prefix"})


def launcher(command: str, arguments: Sequence[str]) -> str:
    """The launcher's words as people say them ("npx", "docker run"), or nothing when the program starts at once."""
    program, rest = _unwrapped(command, arguments)
    for words in _LAUNCHERS.get(program, ()):
        if tuple(_without_options(rest))[: len(words)] == words:
            return " ".join((program, *words))
    return ""


def asks_before_installing(command: str, arguments: Sequence[str]) -> bool:
    """Whether npx may wait for a confirmation of the installation, which no one can give."""
    program, rest = _unwrapped(command, arguments)
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


def _unwrapped(command: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The program that is meant: what `env` and a shell start in their turn."""
    program, rest = _name(command), list(arguments)
    while program in ("env", "nice", "exec", "command") and rest:
        while rest and (rest[0].startswith("-") or "=" in rest[0]):
            rest = rest[1:]
        program, rest = (_name(rest[0]), rest[1:]) if rest else ("", [])
    if program in _SHELLS and len(rest) > 1 and rest[0].startswith("-") and rest[0].endswith("c"):
        try:
            words = shlex.split(rest[1])
        except ValueError:
            return program, rest
        return _unwrapped(words[0], words[1:]) if words else (program, rest)
    return program, rest


def _name(command: str) -> str:
    return PurePosixPath(command).name.lower().removesuffix(".exe").removesuffix(".cmd")


def _without_options(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]

"""The package in a launcher's command line: which one, which version was asked for, and what the server itself gets."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from servers.enums import Ecosystem
from servers.validators import launcher

_NPM = re.compile(r"(?P<name>(?:@[a-z0-9~][\w.~-]*/)?[a-z0-9~_][\w.~-]*)(?:@(?P<version>[^@:/\s]+))?", re.IGNORECASE)
_PYPI = re.compile(
    r"(?P<name>[a-z0-9](?:[\w.-]*[a-z0-9])?)(?P<extras>\[[\w., -]*\])?"
    r"(?:@(?P<version>[^@:/\s]+)|\s*(?P<specifier>(?:[=<>!~]=?=?)\s*[\w.*+!, <>=~-]+))?",
    re.IGNORECASE,
)
_EXACT_NPM = re.compile(r"v?\d+\.\d+\.\d+(?:-[\w.-]+)?(?:\+[\w.-]+)?")
_EXACT_PYPI = re.compile(r"===?\s*([^\s*,]+)")
_IMAGE = re.compile(r"(?P<name>[\w.:/-]+?)(?::(?P<tag>[\w][\w.-]*))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?")
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*t?")

#: npx and its relatives. They are npm's own options, and each passes the rest on to `npm install`.
_NPM_DROPPED = {
    "-y",
    "--yes",
    "-q",
    "--quiet",
    "-s",
    "--silent",
    "--ignore-existing",
    "--prefer-online",
    "--no-install",
}
_NPM_KEPT = {"--prefer-offline", "--offline", "--ignore-scripts", "--legacy-peer-deps", "--force", "--strict-ssl"}
_NPM_VALUES = {"--registry", "--cache", "--userconfig", "--proxy", "--https-proxy", "--cafile", "--before"}
#: `pnpm dlx` and `yarn dlx` always ask the registry
_PROJECT_FIRST = {"npx", "npm exec", "npm x", "bunx", "bun x"}
#: of uvx
_UV_DROPPED = {
    *("-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "-U", "--upgrade", "--isolated", "--refresh"),
    *("--no-progress", "--no-env-file", "--reinstall"),
}
_UV_KEPT = {"--offline", "--native-tls", "--no-config", "--no-index", "--pre", "--system-certs"}
_UV_VALUES = {
    *("--index", "--default-index", "-i", "--index-url", "--extra-index-url", "-f", "--find-links"),
    *("--index-strategy", "--keyring-provider", "--prerelease", "--resolution", "--exclude-newer", "--cache-dir"),
    *("--config-file", "--allow-insecure-host"),
}
_PYTHON = {"-p", "--python"}
#: of `docker run` and `podman run`: those without a value
_RUN_FLAGS = {
    *(
        "--interactive",
        "--tty",
        "--detach",
        "--rm",
        "--init",
        "--privileged",
        "--publish-all",
        "--read-only",
        "--quiet",
    ),
    *("--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--disable-content-trust", "--use-api-socket"),
    *("--replace", "--no-hosts", "--tls-verify", "--env-host", "--http-proxy", "--read-only-tmpfs", "--rmi"),
    *("--no-hostname", "--passwd", "--unsetenv-all", "--"),
}
_RUN_LETTERS = frozenset("itdPq")


#: characters of `PackageCommand.requested` that a pin holds
MOST_REQUESTED = 2_000


class Unpinnable(Exception):
    """A launcher whose package cannot be pinned. The message is a sentence for the page."""


@dataclass(frozen=True)
class PackageCommand:
    """`requirements`: the first is the package, others are installed with it. `version`: an exact one that a person
    wrote. `executable`: the program to run; empty for the package's own. `options`: for the package manager."""

    ecosystem: Ecosystem
    launcher: str
    name: str
    requirements: tuple[str, ...]
    version: str = ""
    executable: str = ""
    options: tuple[str, ...] = ()
    python: str = ""
    #: for an image: the arguments before it
    before: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    #: the same of the registration, where references in it are resolved here
    registered: str = ""

    @property
    def requested(self) -> str:
        """What a pin belongs to."""
        if self.registered:
            return self.registered
        python = ("--python", self.python) if self.python else ()
        return shlex.join((*self.requirements, *self.options, *python))

    @property
    def is_project_first(self) -> bool:
        """Whether its launcher starts the program of the project in the working directory, where that has one."""
        return self.launcher in _PROJECT_FIRST and not self.requirements[0].removeprefix(self.name)

    @property
    def registry(self) -> str:
        return "container registry" if self.ecosystem == Ecosystem.IMAGE else f"{self.ecosystem.label} registry"


def read(command: str, arguments: Sequence[str]) -> PackageCommand | None:
    """None if it is not a launcher. Raises Unpinnable."""
    known = launcher(command, arguments)
    if not known:
        return None
    program = PurePath(command).name.lower().removesuffix(".exe").removesuffix(".cmd")
    for words, reader in _READERS.items():
        first, *rest = words.split()
        if program == first and tuple(arguments[: len(rest)]) == tuple(rest):
            found = reader(words, list(arguments[len(rest) :]))
            if len(found.requested) > MOST_REQUESTED:
                raise Unpinnable(f"The packages and options of {known} are too long to be pinned.")
            return found
    if program != known.split()[0]:
        raise Unpinnable(f"{known} is started by {program}. Register {known} itself as the command to pin its package.")
    raise Unpinnable(f"Packages of {known} cannot be pinned with these arguments.")


def readable(command: str, arguments: Sequence[str]) -> PackageCommand | None:
    """None also for a package that cannot be pinned."""
    try:
        return read(command, arguments)
    except Unpinnable:
        return None


# --- npm -----------------------------------------------------------------------------------------------------------------
def _npm(words: str, arguments: list[str]) -> PackageCommand:
    options, packages, rest = [], [], iter(arguments)
    first = tag = ""
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--" or not word.startswith("-"):
            first = next(rest, "") if word == "--" else word
            break
        if name in ("-p", "--package"):
            packages.append(value if equals else next(rest, ""))
        elif name == "--tag":
            tag = value if equals else next(rest, "")
        elif name in _NPM_VALUES:
            options.append(word if equals else f"{word}={next(rest, '')}")
        elif word in _NPM_KEPT or (
            equals and name.startswith("--") and name not in ("--call", "--workspace", "--prefix")
        ):
            if name not in ("--yes",):
                options.append(word)
        elif word not in _NPM_DROPPED:
            raise Unpinnable(f"{words} with the option {name} runs programs from more than one package.")
    left = list(rest)
    if words in ("npm exec", "npm x"):
        left = _after_dashes(words, left)
    if not first or not (first if not packages else packages[0]):
        raise Unpinnable(f"{words} names no package.")
    requirements = packages or [first]
    found = [_NPM.fullmatch(one) for one in requirements]
    if not all(found):
        wrong = requirements[found.index(None)]
        raise Unpinnable(f"{wrong} is not a package of a registry (a folder, a file or a repository).")
    main = found[0]
    assert main is not None  # noqa: S101  all of them matched
    version = main["version"] or ""
    return PackageCommand(
        Ecosystem.NPM,
        words,
        main["name"],
        tuple(f"{one[0]}@{tag}" if tag and not one["version"] else one[0] for one in found if one),
        version=version.removeprefix("v") if _EXACT_NPM.fullmatch(version) else "",
        executable=first if packages else "",
        options=tuple(options),
        arguments=tuple(left),
    )


def _after_dashes(words: str, left: list[str]) -> list[str]:
    """npm takes options for itself up to `--`."""
    before = left[: left.index("--")] if "--" in left else left
    if any(word.startswith("-") for word in before):
        raise Unpinnable(f"Server options must follow -- in the arguments of {words}.")
    return [word for index, word in enumerate(left) if word != "--" or "--" in left[:index]]


def npm_parts(requirement: str) -> tuple[str, str]:
    """Name and version, tag or range; "latest" where none is written."""
    found = _NPM.fullmatch(requirement)
    return (found["name"], found["version"] or "latest") if found else (requirement, "latest")


# --- PyPI ----------------------------------------------------------------------------------------------------------------
def _uvx(words: str, arguments: list[str]) -> PackageCommand:
    options, extra, rest = [], [], iter(arguments)
    first = source = python = ""
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            first = next(rest, "") if word == "--" else word
            break
        if name in ("--from", "--spec"):
            source = value if equals else next(rest, "")
        elif name in ("-w", "--with"):
            extra += _several(value if equals else next(rest, ""))
        elif name in _PYTHON:
            python = value if equals else next(rest, "")
        elif name in _UV_VALUES:
            options += [name, value if equals else next(rest, "")]
        elif word in _UV_KEPT:
            options.append(word)
        elif word not in _UV_DROPPED:
            raise Unpinnable(f"{words} with the option {name} cannot be pinned.")
    return _of_pypi(words, first, source, extra, tuple(options), python, tuple(rest))


def _pipx(words: str, arguments: list[str]) -> PackageCommand:
    options, extra, rest = [], [], iter(arguments)
    first = source = python = ""
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "--":
            first = next(rest, "") if word == "--" else word
            break
        if name == "--spec":
            source = value if equals else next(rest, "")
        elif name == "--with":
            extra.append(value if equals else next(rest, ""))
        elif name == "--python":
            python = value if equals else next(rest, "")
        elif name in ("-i", "--index-url"):
            options += ["--index-url", value if equals else next(rest, "")]
        elif word not in ("--no-cache", "--verbose", "-v", "--quiet", "-q", "--fetch-missing-python"):
            raise Unpinnable(f"{words} with the option {name} cannot be pinned.")
    return _of_pypi(words, first, source, extra, tuple(options), python, tuple(rest))


def _of_pypi(
    words: str, first: str, source: str, extra: list[str], options: tuple[str, ...], python: str, rest: tuple[str, ...]
) -> PackageCommand:
    if not first:
        raise Unpinnable(f"{words} names no package.")
    found = [_PYPI.fullmatch(one.strip()) for one in (source or first, *extra)]
    if not all(found):
        wrong = (source or first, *extra)[found.index(None)]
        raise Unpinnable(f"{wrong} is not a package of an index (a folder, a file or a repository).")
    main = found[0]
    assert main is not None  # noqa: S101  all of them matched
    if _INTERPRETERS.fullmatch(main["name"]):
        raise Unpinnable(f"{words} {main['name']} runs an interpreter, not a package.")
    requirements = tuple(_requirement(one) for one in found if one)
    exact = _EXACT_PYPI.fullmatch(requirements[0][len(main["name"] + (main["extras"] or "")) :].strip())
    return PackageCommand(
        Ecosystem.PYPI,
        words,
        main["name"],
        requirements,
        version=exact[1] if exact else "",
        executable=first if source else main["name"],
        options=options,
        python=python,
        arguments=rest,
    )


def pypi_extras(requirement: str) -> str:
    """`[web]` of `notes[web]>=1`."""
    found = _PYPI.fullmatch(requirement)
    return (found["extras"] or "") if found else ""


def _several(text: str) -> list[str]:
    """The value of `--with`, as uv splits it: not at a comma inside brackets or between two version limits."""
    found: list[str] = []
    for part in text.split(","):
        if found and (
            found[-1].count("[") > found[-1].count("]") or part.lstrip().startswith(("=", "<", ">", "!", "~"))
        ):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _requirement(found: re.Match[str]) -> str:
    version, specifier = found["version"] or "", (found["specifier"] or "").replace(" ", "")
    specifier = f"=={version}" if version and version != "latest" else specifier
    return f"{found['name']}{found['extras'] or ''}{specifier}"


# --- images --------------------------------------------------------------------------------------------------------------
def _image(words: str, arguments: list[str]) -> PackageCommand:
    place = next(_places(arguments), None)
    if place is None:
        raise Unpinnable(f"{words} names no image.")
    if {"--rootfs", "--rootfs=true"} & {*arguments[:place]}:
        raise Unpinnable(f"{words} with the option --rootfs runs a folder, not an image.")
    found = _IMAGE.fullmatch(arguments[place])
    if found is None:
        raise Unpinnable(f"{arguments[place]} is not the name of an image.")
    before = [*words.split()[1:], *arguments[:place]]
    platform = next((word for word in before if word.startswith("--platform=")), "")
    if "--platform" in before[:-1]:  # the last word may be the value of another option
        platform = f"--platform={before[before.index('--platform') + 1]}"
    return PackageCommand(
        Ecosystem.IMAGE,
        words,
        found["name"],
        (arguments[place],),
        version=found["digest"] or "",
        options=(platform,) if platform else (),
        before=(*words.split()[1:], *_without_pull(arguments[:place])),
        arguments=tuple(arguments[place + 1 :]),
    )


def _places(arguments: list[str]) -> Iterator[int]:
    """Positions of the image: the first word that is neither an option nor an option's value."""
    skip = False
    for index, word in enumerate(arguments):
        if skip:
            skip = False
        elif not word.startswith("-"):
            yield index
        else:
            skip = _takes_next(word)


def _takes_next(option: str) -> bool:
    """Whether the next word is its value."""
    if option.startswith("--"):
        return "=" not in option and option not in _RUN_FLAGS
    return len(option[1:].lstrip("".join(_RUN_LETTERS))) == 1


def _without_pull(options: list[str]) -> Iterator[str]:
    """Without `--pull`, with which the engine would ask the registry at each start."""
    rest = iter(options)
    for word in rest:
        value = [next(rest)] if _takes_next(word) else []
        if word.partition("=")[0] != "--pull":
            yield from (word, *value)


def image_parts(reference: str) -> tuple[str, str]:
    """Repository and tag; "latest" where none is written."""
    found = _IMAGE.fullmatch(reference)
    return (found["name"], found["tag"] or "latest") if found else (reference, "latest")


_READERS: dict[str, Callable[[str, list[str]], PackageCommand]] = {
    "npx": _npm,
    "npm exec": _npm,
    "npm x": _npm,
    "bunx": _npm,
    "bun x": _npm,
    "pnpm dlx": _npm,
    "pnpx": _npm,
    "yarn dlx": _npm,
    "uvx": _uvx,
    "uv tool run": _uvx,
    "pipx run": _pipx,
    "docker run": _image,
    "docker container run": _image,
    "podman run": _image,
    "podman container run": _image,
    "nerdctl run": _image,
}

"""References: `${NAME}` and `${file:/path}` in headers, variables, arguments, directories and URLs, resolved in a worker right before a connect.

In arguments and working directory `${NAME}` is a variable of the server itself, where it has one of that name.

A user who may register a server chooses where its headers go, so a reference reaches only what the worker's operator
offers: variables by pattern (MCPADMIN_REFERENCE_VARIABLES), files by folder (MCPADMIN_REFERENCE_FOLDERS); and of that
only what was granted by name to the person who answers for the registration (see reference_grants.py). `$${` is a
literal `${`.
"""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from django.conf import settings

from servers.secret import Secret
from servers.variables import variable

MAX_FILE_BYTES = 64 * 1024
_REFERENCE = re.compile(r"(\$\$\{)|\$\{(?:(file):([^}\n]{1,1000})|([A-Za-z_][A-Za-z0-9_]{0,199}))\}")


#: why signing in to a server whose URL contains a reference is refused
OPEN_ADDRESS = "The authorization server receives the server's URL, so the URL cannot contain a reference. Write it out, or use a token or header instead."


class ReferenceMissing(Exception):
    """The message is for the page: which reference, and what to do."""


class ReferenceRefused(ReferenceMissing):
    """The reference was not granted to the person who answers for the registration."""


@dataclass
class Resolved:
    """`secrets`: each value that was inserted, to be kept out of logs and results. `files`: those that were read from a
    file, whose content may change soon."""

    text: str
    secrets: list[Secret] = field(default_factory=list)
    files: list[Secret] = field(default_factory=list)


def has_reference(text: str) -> bool:
    return any(not found[1] for found in _REFERENCE.finditer(text))


def names(text: str) -> list[str]:
    """What `text` refers to, as named in grants: "MCP_TOKEN", "file:/run/secrets/token"."""
    return list(_names(text))


def _names(text: str) -> Iterator[str]:
    for found in _REFERENCE.finditer(text):
        if not found[1]:
            yield f"file:{found[3]}" if found[2] else found[4]


def resolve(
    text: str,
    granted: Collection[str],
    written: Callable[[str], str] = str,
    own: Mapping[str, str | Secret] | None = None,
) -> Resolved:
    """Raises ReferenceMissing. The value of a reference is not searched for further references; `granted`: the names
    that may be used here; `written`: formats a value for this kind of text; `own`: the server's variables, which take
    precedence over the worker's."""
    result = Resolved("")
    variables = own or {}

    def put_in(found: re.Match[str]) -> str:
        if found[1]:
            return "${"
        if not found[2] and found[4] in variables:
            mine = variables[found[4]]
            if isinstance(mine, Secret):
                result.secrets.append(mine)
            return written(mine.reveal() if isinstance(mine, Secret) else mine)
        name = f"file:{found[3]}" if found[2] else found[4]
        if name not in granted:
            raise ReferenceRefused(f"${{{name}}} is not granted to the person responsible for this configuration.")
        value = Secret(_file(found[3]) if found[2] else _variable(found[4]))
        result.secrets.append(value)
        if found[2]:
            result.files.append(value)
        return written(value.reveal())

    result.text = _REFERENCE.sub(put_in, text)
    return result


def _variable(name: str) -> str:
    if not any(fnmatchcase(name, pattern) for pattern in settings.REFERENCE_VARIABLES):
        offered = ", ".join(settings.REFERENCE_VARIABLES) or "none"
        raise ReferenceMissing(
            f"${{{name}}} is not available to servers. Available: {offered}. An operator can add more with MCPADMIN_REFERENCE_VARIABLES; arguments can also use variables of the server itself."
        )
    if not (value := variable(name)):
        raise ReferenceMissing(f"The worker has no variable {name}. Set it in the worker's environment and restart it.")
    return value


def _file(name: str) -> str:
    path = _offered(name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        value = data.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise ReferenceMissing(f"The worker cannot read the file {name}: {reason}.") from None
    if len(data) > MAX_FILE_BYTES or not value or "\0" in value:
        raise ReferenceMissing(f"The file {name} is empty, binary or larger than {MAX_FILE_BYTES // 1024} KiB.")
    return value


def _offered(name: str) -> Path:
    """The real path, which must be within an offered folder after links are resolved."""
    path = Path(os.path.realpath(name))
    folders = [Path(os.path.realpath(folder)) for folder in settings.REFERENCE_FOLDERS]
    if not Path(name).is_absolute() or not any(path.is_relative_to(folder) for folder in folders):
        offered = ", ".join(settings.REFERENCE_FOLDERS) or "none"
        raise ReferenceMissing(
            f"The file {name} is not available to servers. Files in these folders are available: {offered}. An operator can add folders with MCPADMIN_REFERENCE_FOLDERS."
        )
    return path

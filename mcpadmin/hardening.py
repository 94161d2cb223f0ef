"""What each of our processes does first: it keeps its secrets and its memory from other processes of the same user.

- umask 077, so that every file is private from its first byte.
- Variables that hold secrets are moved from the environment to `private`. /proc/<pid>/environ shows the memory in which
  the kernel put the environment at exec, whatever os.environ says later: that memory is overwritten too. Children
  inherit none of it. `up` passes the secrets to its parts through a pipe, so they are never in the environment there.
- Not dumpable (Linux): other processes of this user cannot read memory, descriptors or environment, nor attach a
  debugger, and a crash leaves no core file.

Standard library only: `up` imports it, and it comes before anything that reads a setting.
"""

import ctypes
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

#: names and patterns of variables that hold keys and passwords
SECRET_VARIABLES = (
    "MCPADMIN_SECRET_KEY",
    "MCPADMIN_KEYRING",
    "MCPADMIN_KEYRING_COMMAND",
    "MCPADMIN_OUTBOUND_PROXY",
    "MCPADMIN_VALKEY_LOGIN",
    "MCPADMIN_EMAIL_URL",
    "MCPADMIN_WITNESSES",
    "MCPADMIN_WITNESS_S3_SECRET_KEY",
    "MCPADMIN_TOKEN",
    "DATABASE_URL",
    "REDIS_URL",
    "REDIS_URL_*",
)
#: the read end of a pipe with the secrets as one JSON object
PIPE_VARIABLE = "MCPADMIN_SECRETS_FD"
REFERENCES_VARIABLE, INHERITED_VARIABLE = "MCPADMIN_REFERENCE_VARIABLES", "MCPADMIN_INHERITED_VARIABLES"
DEFAULT_REFERENCES = "MCP_*"
#: variables that programs read from the environment, even if a pattern offers them to servers
ORDINARY = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "TMPDIR", "TZ", "LANG", "LC_*", "LD_*", "XDG_*"),
    *("MCPADMIN_*", "DJANGO_*", "CELERY_*", "PYTHON*", "PG*", "SSL_CERT_*", "NO_COLOR"),
)
_PR_SET_DUMPABLE = 4
# fields 48 to 51 of /proc/self/stat, counted after the name
_ARG_START, _ARG_END, _ENV_START, _ENV_END = 45, 46, 47, 48


class PrivateVariables(dict[str, str]):
    """A dict whose values appear in no traceback and no debug page."""

    def __repr__(self) -> str:
        return f"<{len(self)} variables>"


#: the variables that were taken out of the environment
private = PrivateVariables()


class Variables(Mapping[str, str]):
    """All variables of this process: those of the environment and the private ones."""

    def __getitem__(self, name: str) -> str:
        return private[name] if name in private else os.environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**os.environ, **private})

    def __len__(self) -> int:
        return len({**os.environ, **private})


variables = Variables()


def harden() -> None:
    """Call it before anything is read, opened or started. A second call finds nothing left to do."""
    os.umask(0o077)
    if descriptor := os.environ.pop(PIPE_VARIABLE, ""):
        with os.fdopen(int(descriptor), "rb") as pipe:
            private.update(json.loads(pipe.read()))
    private.update({name: os.environ.pop(name) for name in list(os.environ) if is_secret(name)})
    _wipe(private)
    forbid_dumps()


def is_secret(name: str) -> bool:
    """A variable that servers may refer to (${NAME}) is secret too, unless programs need it or every server gets it."""
    if _matches(name, SECRET_VARIABLES):
        return True
    inherited = variables.get(INHERITED_VARIABLE, "").split(",")
    offered = variables.get(REFERENCES_VARIABLE, DEFAULT_REFERENCES).split(",")
    return _matches(name, offered) and not _matches(name, (*ORDINARY, *inherited))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns)


def handed_over(secrets: Mapping[str, str]) -> int:
    """The read end of a pipe that holds the secrets: give it to one child as PIPE_VARIABLE, and close it."""
    text = json.dumps(dict(secrets)).encode()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        if os.write(writing, text) == len(text):
            return reading
    finally:
        os.close(writing)
    os.close(reading)
    raise ValueError(f"the secret variables need {len(text)} bytes, more than a pipe holds here")


def _wipe(names: Mapping[str, str]) -> None:
    """Overwrite the values where /proc/<pid>/environ reads them. os.environ no longer refers to that memory."""
    if not names:
        return
    for address, entry in _memory(_ENV_START, _ENV_END):
        name, equals, value = entry.partition(b"=")
        if equals and os.fsdecode(name) in names:
            ctypes.memset(address + len(name) + 1, 0, len(value))


def wipe_argument(value: str) -> None:
    """Overwrite a secret on the command line where `ps` reads it: alone, or after the name of its option."""
    secret = os.fsencode(value)
    for address, entry in _memory(_ARG_START, _ARG_END):
        if secret and (entry == secret or entry.endswith(b"=" + secret)):
            ctypes.memset(address + len(entry) - len(secret), ord("*"), len(secret))


def _memory(start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The address and text of each string that the kernel keeps there for this process; none where it does not say."""
    if not sys.platform.startswith("linux"):
        return
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    address = int(fields[start])
    for entry in ctypes.string_at(address, int(fields[end]) - address).split(b"\0"):
        yield address, entry
        address += len(entry) + 1


def forbid_dumps() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

"""The environment of a child, built from scratch, and the lookup of its program on its own PATH."""

import os
import shutil
from collections.abc import Mapping
from typing import Final

from ...core.errors import Fault, LaunchError
from .confinement import Confinement

#: variables that a child inherits unless they are declared
INHERITED: Final = ("PATH", "HOME", "LANG", "TZ")


def environment(declared: Mapping[str, str], confinement: Confinement | None = None) -> dict[str, str]:
    """The variables of a child. A confined child gets its own home instead of ours."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return inherited | (confinement.environment(declared) if confinement else dict(declared))


def find(command: str, cwd: str | None, env: Mapping[str, str]) -> str:
    """The absolute path of the program, or LaunchError."""
    if not command or "\0" in command:
        raise LaunchError(Fault.COMMAND_NOT_FOUND, "No command is given.")
    if cwd is not None and not os.path.isdir(cwd):
        raise LaunchError(Fault.SPAWN_FAILED, f"The working directory {cwd} does not exist.")
    if os.sep in command:
        return _by_path(command, cwd)
    found = shutil.which(command, path=env.get("PATH", os.defpath))
    if found is None:
        raise LaunchError(Fault.COMMAND_NOT_FOUND, f"The command {command} was not found on the server's PATH.")
    return os.path.abspath(found)


def _by_path(command: str, cwd: str | None) -> str:
    path = os.path.abspath(os.path.join(cwd or os.getcwd(), command))
    if not os.path.isfile(path):
        raise LaunchError(Fault.COMMAND_NOT_FOUND, f"The command {path} does not exist.")
    if not os.access(path, os.X_OK):
        raise LaunchError(Fault.SPAWN_FAILED, f"The command {path} is not executable.")
    return path

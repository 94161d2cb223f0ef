"""Recognizes from a server's own messages that a file was missing or refused because of its confinement.

Kernels do not report Landlock's refusals to an unprivileged program, and a file outside the view simply does not exist
there. But programs say which file is missing, and this process can see whether it exists.
"""

import os
import re
from typing import Final

from .confinement import DEVICES, ETC, SYSTEM, Confinement

#: begins each line about a refusal
REFUSAL_MARK: Final = "[mcpadmin]"
_COMPLAINT: Final = re.compile(
    r"EACCES|ENOENT|EROFS|EPERM|ENOTDIR|Permission denied|No such file|Read-only file system|Operation not permitted"
    r"|not accessible|does not exist|cannot access|not found",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"""(?:^|[\s'"`=(:\[])(/[^\s'"`:,;()\[\]]+)""")
_MOST_PATHS: Final = 8


def refused_path(line: str, confinement: Confinement) -> str | None:
    """The path that a line complains about, if it exists here and the server may not use it."""
    if len(line) > 4096 or not _COMPLAINT.search(line):
        return None
    for path in _PATH.findall(line)[:_MOST_PATHS]:
        path = os.path.normpath(path)
        if confinement.allows(path) or any(
            path == known or path.startswith(known + "/") for known in (*SYSTEM, *ETC, *DEVICES)
        ):
            continue
        if os.path.lexists(path):
            return str(path)
    return None

"""Gives root up as `up` does, and becomes a program: python -m tests.mcpadmin.given_up DATA_DIR PROGRAM ARGUMENTS…"""

import os
import sys
from pathlib import Path

from mcpadmin.up import unprivileged

if __name__ == "__main__":
    privileges = unprivileged.drop(Path(sys.argv[1]), "")
    if not privileges.contained:
        sys.exit(f"not in a namespace: {privileges.lines}")
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  # a test's own command, no shell

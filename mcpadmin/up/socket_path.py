"""Where the embedded Valkey listens.

Normally `<data>/valkey/valkey.sock`. A unix socket's path has at most 107 bytes (Linux; macOS 103), and it becomes part
of URLs; where the data directory breaks either rule, the socket lives in a short private directory whose path is kept
in `<data>/valkey/socket-path`, so that every manage.py command with the same data directory finds it.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

MAX_BYTES = 103
RECORD = "socket-path"
_URL_SAFE = re.compile(r"[A-Za-z0-9_./+~-]+")


def fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_BYTES and _URL_SAFE.fullmatch(str(path)) is not None


def recorded(valkey_dir: Path) -> Path:
    """The socket's path as the last `up` on this data directory chose it."""
    usual = valkey_dir / "valkey.sock"
    if fits(usual):
        return usual
    try:
        return Path((valkey_dir / RECORD).read_text())
    except OSError:
        return usual


def choose(valkey_dir: Path) -> Path:
    """A fresh path, recorded where it is not the usual one. The directory of the old one is gone afterwards."""
    forget(valkey_dir)
    usual = valkey_dir / "valkey.sock"
    if fits(usual):
        return usual
    short = Path(tempfile.mkdtemp(prefix="mcpadmin-", dir="/tmp")) / "valkey.sock"
    (valkey_dir / RECORD).write_text(str(short))
    return short


def forget(valkey_dir: Path) -> None:
    """Remove the socket and, where it had one, its private directory."""
    path = recorded(valkey_dir)
    path.unlink(missing_ok=True)
    if path.parent != valkey_dir and path.parent.name.startswith("mcpadmin-"):
        shutil.rmtree(path.parent, ignore_errors=True)
    (valkey_dir / RECORD).unlink(missing_ok=True)

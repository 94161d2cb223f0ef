"""Where this copy of mcpadmin lives: a checkout, or a package that pip or uv installed. Standard library only."""

import os
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parent
ROOT: Final = PACKAGE.parent
#: templates, static files and documents in a wheel; in a checkout they are next to the package
_SHARED: Final = PACKAGE / "share"
IS_PACKAGE: Final = _SHARED.is_dir()
SHARED: Final = _SHARED if IS_PACKAGE else ROOT
#: what starts a management command, for messages that name one
PROGRAM: Final = "mcpadmin" if IS_PACKAGE else "manage.py"

_OF_THE_SYSTEM: Final = Path("/var/lib/mcpadmin")


def default_data_dir() -> Path:
    """`data` in a checkout. A package keeps nothing beside its code: an upgrade, or uvx when it cleans up, would remove
    it."""
    if not IS_PACKAGE:
        return ROOT / "data"
    if os.geteuid() == 0:
        return _OF_THE_SYSTEM
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "mcpadmin"
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "mcpadmin"
    except RuntimeError:  # a bare number without an account, and without HOME
        return _OF_THE_SYSTEM


def document(name: str) -> str:
    """The place of a document of docs/, for messages that name it."""
    return str(SHARED / "docs" / name) if IS_PACKAGE else f"docs/{name}"

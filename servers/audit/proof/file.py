"""The checkpoint file (MCPADMIN_CHECKPOINT_FILE): one statement per line, append-only."""

import json
import os
from pathlib import Path

from django.conf import settings

from servers.enums import StatementKind

#: longer than any line of ours
_LINE_BYTES = 2_048


def append(kind: str, note: str) -> None:
    """The line is on disk when it returns. Raises OSError."""
    path = Path(settings.CHECKPOINT_FILE)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = line(kind, note).encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data  # a write was cut off: its line stays as it is, and is not a statement
        if os.write(descriptor, data) != len(data):
            raise OSError(0, "The disk is full.")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def line(kind: str, note: str) -> str:
    kept = "cut" if kind == StatementKind.CUT else "checkpoint"
    return json.dumps({"type": kept, "note": note}, ensure_ascii=False) + "\n"


def newest(most: int) -> list[str]:
    """The notes at the end of the file, oldest first; empty if there is no file. Raises OSError."""
    path = Path(settings.CHECKPOINT_FILE)
    try:
        with path.open("rb") as lines:
            lines.seek(max(0, lines.seek(0, os.SEEK_END) - most * _LINE_BYTES))
            found = lines.read().splitlines()[-most:]
    except FileNotFoundError:
        return []
    return [note for text in found if (note := _note(text)) is not None]


def version() -> tuple[int, int] | None:
    """Changes as soon as a line is appended; None if there is no file. Raises OSError."""
    try:
        stat = os.stat(settings.CHECKPOINT_FILE)
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _note(text: bytes) -> str | None:
    try:
        note = json.loads(text)["note"]
    except (ValueError, KeyError, TypeError):
        return None
    return note if isinstance(note, str) else None

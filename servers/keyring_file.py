"""The key ring in a file: created and changed atomically, even across a crash; mode 600. A symbolic link to it stays one.

A process that changes it holds a lock meanwhile: of two rotations at once, the one that wrote last would otherwise remove the key
that the other has just begun to use.
"""

import fcntl
import json
import os
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers import keyring
from servers.keyring import KEY_BYTES


def prepare_key(path: Path) -> str:
    """Id of a key added for the next rotation, unused so far, so the key ring can be copied to every machine first."""
    with _changing(path) as document:
        return _next_key(path, document)


def next_key(path: Path) -> str:
    """The id of the prepared key; empty if there is none."""
    return str(json.loads(path.read_text()).get("next", ""))


def use_next_key(path: Path) -> str:
    """Make the prepared key, or a new one, the current key. Returns its id."""
    with _changing(path) as document:
        _next_key(path, document)
        document["current"] = document.pop("next")
        _replace(path, json.dumps(document))
    return str(document["current"])


def remove_keys(path: Path, key_ids: Iterable[str]) -> None:
    with _changing(path) as document:
        gone = set(key_ids) - {document["current"], document.get("next")}
        document["keys"] = {key_id: key for key_id, key in document["keys"].items() if key_id not in gone}
        _replace(path, json.dumps(document))


def _next_key(path: Path, document: dict[str, Any]) -> str:
    """Stored before it is used for anything."""
    if "next" not in document:
        document["next"] = f"k{secrets.token_hex(4)}"
        document["keys"][document["next"]] = b64encode(secrets.token_bytes(KEY_BYTES)).decode()
        _replace(path, json.dumps(document))
    return str(document["next"])


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, Any]]:
    """The content of the file, locked against changes by other processes until the end."""
    folder = os.open(path.resolve().parent, os.O_RDONLY)  # not the file: it is replaced
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield json.loads(path.read_text())
    finally:
        os.close(folder)


def _replace(path: Path, text: str) -> None:
    """Synced to disk before the rename: losing the key ring loses every secret."""
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:  # it holds every key
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    keyring.forget_file()

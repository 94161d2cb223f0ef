"""The ring in a file: made, and changed, in one step that a crash cannot cut in two; mode 600."""

import json
import os
import secrets
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from servers.keyring import KEY_BYTES


def prepare_key(path: Path) -> str:
    """A key for the next rotation, not used yet, so that the ring can be copied to every machine first. Its id."""
    ring = json.loads(path.read_text())
    if "next" not in ring:
        ring["next"] = f"k{secrets.token_hex(4)}"
        ring["keys"][ring["next"]] = b64encode(secrets.token_bytes(KEY_BYTES)).decode()
        _replace(path, json.dumps(ring))
    return str(ring["next"])


def use_next_key(path: Path) -> str:
    """The prepared key, or a new one, is current from now on. Its id."""
    prepare_key(path)
    ring = json.loads(path.read_text())
    ring["current"] = ring.pop("next")
    _replace(path, json.dumps(ring))
    return str(ring["current"])


def remove_keys(path: Path, key_ids: Iterable[str]) -> None:
    ring = json.loads(path.read_text())
    gone = set(key_ids) - {ring["current"], ring.get("next")}
    ring["keys"] = {key_id: key for key_id, key in ring["keys"].items() if key_id not in gone}
    _replace(path, json.dumps(ring))


def _replace(path: Path, text: str) -> None:
    """On disk before it takes the name: a ring that is lost loses every secret."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

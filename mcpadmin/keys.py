"""The key files of an installation: Django's secret key, the key ring that seals credentials, and the key that signs the
checkpoints of the audit log.

All live outside the database, in the data directory, readable by their owner only.
"""

import errno
import json
import os
import secrets
from base64 import b64encode
from pathlib import Path


def _create(path: Path, text: str) -> str:
    """Create `path` with mode 600; when another process was faster, its content wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return path.read_text()
    finally:
        draft.unlink()
    return text


def _new_keyring() -> str:
    key_id = f"k{secrets.token_hex(4)}"
    return json.dumps({"current": key_id, "keys": {key_id: b64encode(secrets.token_bytes(32)).decode()}})


def read_or_create_secret_key(path: Path) -> str:
    """Raises OSError, also for an empty file, which a copy to a full disk leaves: every page would fail without a key."""
    found = path.read_text() if path.exists() else _create(path, secrets.token_urlsafe(48))
    if not found.strip():
        raise OSError(errno.ENODATA, "empty file", str(path))
    return found.strip()


def ensure_keyring(path: Path) -> None:
    """A new key ring where none exists. `servers.crypto.missing_keys` checks whether it fits the database."""
    if not path.exists():
        _create(path, _new_keyring())


def ensure_checkpoint_key(path: Path, host: str) -> None:
    """A new key where none exists. `servers.audit.proof.key` reads it; any 32 bytes are an Ed25519 private key."""
    if not path.exists():
        _create(path, new_checkpoint_key(host))


def replace_checkpoint_key(path: Path, host: str, retired: list[str]) -> None:
    """`retired`: public keys of the same log whose signatures still count. A symbolic link stays one. Raises OSError."""
    path = path.resolve()
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        _create(draft, new_checkpoint_key(host, retired))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)  # it holds a private key


def new_checkpoint_key(host: str, retired: list[str] | None = None) -> str:
    name = f"{host}/audit-{secrets.token_hex(4)}"
    private = b64encode(secrets.token_bytes(32)).decode()
    return json.dumps({"name": name, "private": private, "retired": retired or []})

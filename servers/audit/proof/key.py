"""The key that signs statements about the log: in a file outside the database (MCPADMIN_CHECKPOINT_KEY_FILE).

{"name": "mcpadmin.example.com/audit-3f9c2a1b", "private": "<32 bytes in base64>", "retired": ["<public key>", ...]}
"""

import json
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from servers.audit.proof.notes import NoteInvalid, PublicKey


class KeyMissing(Exception):
    """No readable checkpoint key. The message may be shown on a page: it does not contain the key."""


@dataclass(frozen=True)
class SigningKey:
    """`trusted`: the keys whose signatures count: this key and those that it replaced."""

    public: PublicKey
    private: Ed25519PrivateKey = field(repr=False)
    trusted: tuple[PublicKey, ...]


_cached: tuple[object, SigningKey] | None = None


def load() -> SigningKey:
    """Notices a replaced file. Raises KeyMissing."""
    global _cached
    path = Path(settings.CHECKPOINT_KEY_FILE)
    try:
        stat = path.stat()
        version = path, stat.st_mtime_ns, stat.st_ino, stat.st_size
        cached = _cached
        if cached is None or cached[0] != version:
            cached = _cached = version, _parsed(path.read_text())
    except OSError as exc:
        raise KeyMissing(f"The checkpoint key {path} cannot be read: {exc.strerror}.") from exc
    return cached[1]


def _parsed(text: str) -> SigningKey:
    try:
        document = json.loads(text)
        name, seed = str(document["name"]), b64decode(document["private"], validate=True)
        private = Ed25519PrivateKey.from_private_bytes(seed)
        retired = tuple(PublicKey.parsed(str(key)) for key in document.get("retired", ()))
    except (ValueError, KeyError, TypeError, AttributeError, NoteInvalid) as exc:
        path = settings.CHECKPOINT_KEY_FILE
        raise KeyMissing(f"The checkpoint key {path} is damaged ({type(exc).__name__}).") from None
    if not name or "+" in name or any(map(str.isspace, name)):
        raise KeyMissing(f"The checkpoint key {settings.CHECKPOINT_KEY_FILE} is damaged: its name is not an origin.")
    public = PublicKey(name, private.public_key().public_bytes_raw())
    return SigningKey(public, private, (public, *retired))

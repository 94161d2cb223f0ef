"""Sealing of secrets at rest: AES-256-GCM under a key that lives outside the database.

    SealError
    ├── KeyRingMissing   the ring file is absent or unreadable
    ├── UnknownKey       the ring lacks the key that a row was sealed with
    └── SealBroken       the ciphertext was changed, or moved to another row or field

A sealed value is 1 format byte, 12 bytes of nonce and the ciphertext with its tag. It is bound to table, row, field and
key by the associated data, so a copy in any other place does not open.
"""

import json
import os
import threading
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.apps import apps
from django.conf import settings

from servers.secret import Secret

_FORMAT = b"\x01"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class SealError(Exception):
    """A secret cannot be sealed or opened. The message is fit for a page: it holds no key and no value."""


class KeyRingMissing(SealError):
    pass


class UnknownKey(SealError):
    pass


class SealBroken(SealError):
    pass


@dataclass(frozen=True, repr=False)
class _Ring:
    current: str
    ciphers: Mapping[str, AESGCM]

    def cipher(self, key_id: str) -> AESGCM:
        try:
            return self.ciphers[key_id]
        except KeyError:
            raise UnknownKey(
                f"The key ring has no key {key_id!r}. Restore the key ring that this database used."
            ) from None


_cached: tuple[object, _Ring] | None = None
_guard = threading.Lock()


def seal(value: str, *, table: str, uid: UUID, field: str) -> tuple[bytes, str]:
    """The sealed value and the id of the key it was sealed with."""
    ring = _ring()
    nonce = os.urandom(_NONCE_BYTES)
    bound_to = _associated(table, uid, field, ring.current)
    return _FORMAT + nonce + ring.cipher(ring.current).encrypt(nonce, value.encode(), bound_to), ring.current


def open_sealed(sealed: bytes, *, key_id: str, table: str, uid: UUID, field: str) -> Secret:
    data = bytes(sealed)  # PostgreSQL hands out memoryviews
    cipher = _ring().cipher(key_id)
    if data[:1] != _FORMAT or len(data) <= 1 + _NONCE_BYTES:
        raise SealBroken(f"The sealed {field} of {table} {uid} has an unknown format.")
    nonce, ciphertext = data[1 : 1 + _NONCE_BYTES], data[1 + _NONCE_BYTES :]
    try:
        return Secret(cipher.decrypt(nonce, ciphertext, _associated(table, uid, field, key_id)).decode())
    except InvalidTag as exc:
        raise SealBroken(f"The sealed {field} of {table} {uid} was changed or moved. Enter the value again.") from exc


def missing_keys() -> list[str]:
    """Ids of keys that rows were sealed with and that the ring lacks. Raises KeyRingMissing without a readable ring."""
    used: set[str] = set(
        _sealed_rows("ServerValue").filter(sealed__isnull=False).values_list("key_id", flat=True).distinct()
    )
    living = _sealed_rows("ServerDraft").filter(expires_at__gt=datetime.now(UTC))
    used.update(living.values_list("key_id", flat=True).distinct())
    return sorted(used - _ring().ciphers.keys())


def _sealed_rows(model: str):  # type: ignore[no-untyped-def]  # a QuerySet; models stand above this module
    return apps.get_model("servers", model)._default_manager.order_by()


def _associated(table: str, uid: UUID, field: str, key_id: str) -> bytes:
    return f"{table}:{uid}:{field}:{key_id}".encode()


def _ring() -> _Ring:
    """The ring, read again when its file was replaced."""
    global _cached
    path = Path(settings.KEYRING_FILE)
    try:
        stat = path.stat()
    except OSError as exc:
        raise KeyRingMissing(f"The key ring {path} cannot be read: {exc.strerror}.") from exc
    version = (path, stat.st_mtime_ns, stat.st_ino, stat.st_size)
    with _guard:
        if _cached is None or _cached[0] != version:
            _cached = (version, _read(path))
        return _cached[1]


def _read(path: Path) -> _Ring:
    try:
        document = json.loads(path.read_bytes())
        keys = {str(key_id): b64decode(text, validate=True) for key_id, text in document["keys"].items()}
        current = str(document["current"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as exc:
        # `from None` would hide a cause that names no key: the texts of these errors may quote the file.
        raise KeyRingMissing(f"The key ring {path} is damaged ({type(exc).__name__}).") from None
    if current not in keys or any(len(key) != _KEY_BYTES for key in keys.values()):
        raise KeyRingMissing(f"The key ring {path} is damaged: it needs 32-byte keys and a current one.")
    return _Ring(current, {key_id: AESGCM(key) for key_id, key in keys.items()})

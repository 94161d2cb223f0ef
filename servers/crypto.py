"""Sealing of secrets at rest: AES-256-GCM under data keys, which a key of the key ring wraps.

A sealed value has a data key of its own: a format byte, the wrapped data key (nonce and ciphertext) and the value (nonce
and ciphertext). The value is bound to table, row and field by the associated data, and its data key to these and to the
wrapping key, so a copy anywhere else cannot be decrypted. A rotation re-wraps the data key and leaves the value
unchanged.

Format 3 is for rows that are written together: they share a data key, which is bound to table, field and wrapping key;
each value is bound to its row as before. Format 1, of earlier versions, has no data key: it still opens, and a rotation
reseals it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.apps import apps
from django.utils.crypto import salted_hmac

from servers import keyring
from servers.keyring import KEY_BYTES, KeyringMissing, SealError, UnknownKey
from servers.randomness import random_bytes
from servers.secret import Secret

__all__ = [
    "KeyringMissing",
    "SealBroken",
    "SealError",
    "UnknownKey",
    "open_bytes",
    "open_sealed",
    "seal",
    "seal_bytes",
    "seal_together",
]

_DIRECT, _ENVELOPE, _SHARED = b"\x01", b"\x02", b"\x03"
_NONCE_BYTES, _TAG_BYTES = 12, 16
_WRAPPED_BYTES = _NONCE_BYTES + KEY_BYTES + _TAG_BYTES
#: a shorter value could be found by brute force
_FINGERPRINTED_LENGTH = 8


class SealBroken(SealError):
    pass


# --- one value -----------------------------------------------------------------------------------------------------------
def seal(value: str, *, table: str, uid: UUID, field: str) -> tuple[bytes, str]:
    """The sealed value and the id of the key that wraps its data key."""
    return seal_bytes(value.encode(), table=table, uid=uid, field=field)


def seal_bytes(value: bytes, *, table: str, uid: UUID, field: str) -> tuple[bytes, str]:
    """Like `seal`, for bytes."""
    random = random_bytes(KEY_BYTES + 2 * _NONCE_BYTES)
    data_key, nonces = random[:KEY_BYTES], random[KEY_BYTES:]
    wrapped, key_id = _wrap(data_key, nonces[:_NONCE_BYTES], table, uid, field)
    sealed = _encrypted(AESGCM(data_key), nonces[_NONCE_BYTES:], value, _place(table, uid, field))
    return _ENVELOPE + wrapped + sealed, key_id


def seal_together(values: Sequence[tuple[UUID, bytes]], *, table: str, field: str) -> tuple[list[bytes], str]:
    """Like `seal_bytes`, for rows (uid and value) that are written together: one data key costs a fraction of many."""
    random = random_bytes(KEY_BYTES + (1 + len(values)) * _NONCE_BYTES)
    data_key = random[:KEY_BYTES]
    nonces = (random[start : start + _NONCE_BYTES] for start in range(KEY_BYTES, len(random), _NONCE_BYTES))
    wrapped, key_id = _wrap(data_key, next(nonces), table, None, field)
    cipher, head = AESGCM(data_key), _SHARED + wrapped
    sealed = [
        head + _encrypted(cipher, nonce, value, _place(table, uid, field))
        for nonce, (uid, value) in zip(nonces, values, strict=True)
    ]
    return sealed, key_id


def open_sealed(sealed: bytes | memoryview, *, key_id: str, table: str, uid: UUID, field: str) -> Secret:
    return Secret(open_bytes(sealed, key_id=key_id, table=table, uid=uid, field=field).decode())


def open_bytes(sealed: bytes | memoryview, *, key_id: str, table: str, uid: UUID, field: str) -> bytes:
    data = bytes(sealed)  # PostgreSQL hands out memoryviews
    cipher = keyring.cipher(key_id)  # a missing key is reported before anything else
    try:
        return _opened(cipher, data, key_id, table, uid, field)
    except InvalidTag as exc:
        raise SealBroken(
            f"The encrypted {field} of {table} {uid} was changed or moved, or the key ring has another key {key_id}. Restore the key ring, or enter the value again."
        ) from exc


def resealed(sealed: bytes, *, key_id: str, table: str, uid: UUID, field: str) -> tuple[bytes, str]:
    """The same value under the current key of the key ring. A value in an envelope is not decrypted for this."""
    data = bytes(sealed)
    if data[:1] not in (_ENVELOPE, _SHARED):
        opened = open_sealed(data, key_id=key_id, table=table, uid=uid, field=field)
        return seal(opened.reveal(), table=table, uid=uid, field=field)
    cipher = keyring.cipher(key_id)
    try:
        data_key = _data_key(cipher, data, key_id, table, uid, field)
        wrapped, new_id = _wrap(data_key, random_bytes(_NONCE_BYTES), table, _bound_to(data, uid), field)
    except InvalidTag as exc:
        raise SealBroken(
            f"The encrypted {field} of {table} {uid} was changed or moved, or the key ring has another key {key_id}. Restore the key ring, or enter the value again."
        ) from exc
    return data[:1] + wrapped + data[1 + _WRAPPED_BYTES :], new_id


def fingerprint(value: str) -> str:
    """Only tells values apart: keyed by the installation's secret key, which is not in the key ring."""
    if len(value) < _FINGERPRINTED_LENGTH:
        return "short"
    return salted_hmac("mcpadmin.fingerprint", value, algorithm="sha256").hexdigest()[:8]


def _opened(cipher: AESGCM, data: bytes, key_id: str, table: str, uid: UUID, field: str) -> bytes:
    if data[:1] == _DIRECT and len(data) > 1 + _NONCE_BYTES:
        return _decrypted(cipher, data[1:], f"{table}:{uid}:{field}:{key_id}".encode())
    if data[:1] not in (_ENVELOPE, _SHARED) or len(data) <= 1 + _WRAPPED_BYTES + _NONCE_BYTES:
        raise SealBroken(f"The encrypted {field} of {table} {uid} has an unknown format.")
    data_key = _data_key(cipher, data, key_id, table, uid, field)
    return _decrypted(AESGCM(data_key), data[1 + _WRAPPED_BYTES :], _place(table, uid, field))


def _data_key(cipher: AESGCM, data: bytes, key_id: str, table: str, uid: UUID, field: str) -> bytes:
    place = _key_place(table, _bound_to(data, uid), field, key_id)
    return _decrypted(cipher, data[1 : 1 + _WRAPPED_BYTES], place)


def _bound_to(data: bytes, uid: UUID) -> UUID | None:
    """The row that the data key of this sealed value is bound to; None if it is shared."""
    return None if data[:1] == _SHARED else uid


def _wrap(data_key: bytes, nonce: bytes, table: str, uid: UUID | None, field: str) -> tuple[bytes, str]:
    now = keyring.load()
    place = _key_place(table, uid, field, now.current)
    return _encrypted(now.cipher(now.current), nonce, data_key, place), now.current


def _place(table: str, uid: UUID, field: str) -> bytes:
    return f"value:{table}:{uid}:{field}".encode()


def _key_place(table: str, uid: UUID | None, field: str, key_id: str) -> bytes:
    return f"key:{table}:{uid or 'shared'}:{field}:{key_id}".encode()


def _encrypted(cipher: AESGCM, nonce: bytes, value: bytes, bound_to: bytes) -> bytes:
    return nonce + cipher.encrypt(nonce, value, bound_to)


def _decrypted(cipher: AESGCM, data: bytes, bound_to: bytes) -> bytes:
    return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound_to)


# --- all of them -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SealedField:
    """A column with sealed values, next to the `uid` of its row. `expires`: the column with the time after which a
    value is no longer needed."""

    model: str
    field: str
    key_field: str
    expires: str = ""

    @property
    def table(self) -> str:
        return str(apps.get_model(self.model)._meta.db_table)

    def rows(self) -> Any:
        """A QuerySet of the rows with a value worth keeping; untyped because models are a layer above this module."""
        rows = apps.get_model(self.model)._default_manager.order_by().filter(**{f"{self.field}__isnull": False})
        return rows.filter(**{f"{self.expires}__gt": datetime.now(UTC)}) if self.expires else rows


_fields: dict[tuple[str, str], SealedField] = {}


def has_sealed(model: str, field: str = "sealed", key_field: str = "key_id", expires: str = "") -> None:
    """Each app registers every column with sealed values here: values in other columns are lost at the next
    rotation."""
    _fields[(model, field)] = SealedField(model, field, key_field, expires)


def sealed_fields() -> Iterator[SealedField]:
    yield from _fields.values()


def missing_keys() -> list[str]:
    """Ids of keys that rows need and the key ring lacks. Raises KeyringMissing without a readable key ring."""
    used: set[str] = set()
    for place in sealed_fields():
        used.update(place.rows().values_list(place.key_field, flat=True).distinct())
    return sorted(used - keyring.load().ciphers.keys())


def wrong_keys() -> list[str]:
    """Ids of keys in the key ring that do not open the newest value of any column that names them: keys of another
    installation, perhaps, whose ids are often the same."""
    ring = keyring.load().ciphers
    opens: dict[str, bool] = {}
    for place in sealed_fields():
        for key_id in set(place.rows().values_list(place.key_field, flat=True).distinct()) & ring.keys():
            row = place.rows().filter(**{place.key_field: key_id}).order_by("-pk").values("uid", place.field).first()
            try:
                if row is not None:
                    open_bytes(row[place.field], key_id=key_id, table=place.table, uid=row["uid"], field=place.field)
                    opens[key_id] = True
            except SealBroken:
                opens.setdefault(key_id, False)
    return sorted(key_id for key_id, one in opens.items() if not one)

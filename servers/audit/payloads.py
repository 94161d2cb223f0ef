"""Arguments and results in rows of their own: an event holds only their salted digest, so one can be erased.

The digest is always that of the content itself, sealed or not, so switching the encryption on or off changes no event.
"""

import hashlib
import zlib
from collections.abc import Iterable

from django.conf import settings
from django.utils import timezone

from servers.audit import payload_privacy
from servers.crypto import SealError, open_bytes, seal_bytes
from servers.enums import PayloadKind
from servers.models import Payload, Unredacted
from servers.randomness import random_bytes, random_uuid
from servers.signals import payload_erased
from servers.sql import Insert, database, param
from servers.storable import is_storable, storable

#: what `read` and `_content` raise for content that was changed behind our back, or by a failing disk
DAMAGED = (zlib.error, UnicodeDecodeError)
_SALT_BYTES = 16
_PREVIEW_CHARS = 200
_TABLE = Payload._meta.db_table
#: first byte of sealed content: plain, or compressed
_PLAIN, _PACKED = b"p", b"z"
#: a sample that compresses to more than this fraction of its size has no repeats
_SAMPLE_BYTES, _DENSE = 64 * 1024, 0.7
insert = Insert(Payload)
insert_unredacted = Insert(Unredacted)


def store(kind: PayloadKind, text: str, *, redacted: int = 0) -> Payload:
    """Written in the current transaction. Raises SealError if payloads are sealed and the key ring cannot be read."""
    return insert(made(kind, text, redacted=redacted))


def made(kind: PayloadKind, text: str, *, redacted: int = 0) -> Payload:
    """The row, not written yet. Above INLINE_PAYLOAD_BYTES the text is compressed."""
    data = text.encode("utf-8", "surrogatepass")
    salt = random_bytes(_SALT_BYTES)
    row = Payload(uid=random_uuid(), kind=kind, salt=salt, digest=digest(salt, data), size=len(data), redacted=redacted)
    small = len(data) <= settings.INLINE_PAYLOAD_BYTES
    if payload_privacy.current().seal:
        content = _PLAIN + data if small else _PACKED + _compressed(data)
        row.sealed, row.key_id = seal_bytes(content, table=_TABLE, uid=row.uid, field="sealed")
    elif small and is_storable(text):
        row.text = text
    else:
        row.blob = _compressed(data)
    return row


def is_large(text: str) -> bool:
    """Whether `made` takes long enough, for compressing, to be called outside a transaction."""
    return len(text) > settings.INLINE_PAYLOAD_BYTES


def digest(salt: bytes, data: bytes) -> str:
    return hashlib.sha256(salt + data).hexdigest()


def read(payload: Payload) -> str | None:
    """The text as it was stored; None if it was erased. Raises SealError if the key ring cannot decrypt it, and
    DAMAGED."""
    if payload.erased_at is not None:
        return None
    if payload.sealed is None and payload.blob is None:
        return payload.text
    return _content(payload).decode("utf-8", "surrogatepass")


def indexable(payload: Payload) -> bool:
    """Whether its text may also appear outside it, in the search index and in a preview: not if it is sealed or
    erased."""
    return payload.sealed is None and payload.erased_at is None


def preview(payload: Payload, text: str) -> str:
    """The beginning of the `text` of a payload, for lists; empty if it must not appear outside the payload."""
    if not indexable(payload) or text == "{}":
        return ""
    return storable(text, _PREVIEW_CHARS)


def intact(payload: Payload) -> bool:
    """Whether what is stored still has the digest that the audit event names. An erased one is intact."""
    if payload.erased_at is not None:
        return True
    try:
        return digest(bytes(payload.salt), _content(payload)) == payload.digest
    except (zlib.error, SealError):
        return False


def erase(payload: Payload) -> None:
    """Remove the content and the salt for good, in a transaction; digest and chain stay as they are."""
    erase_all([payload.pk], everywhere=True)
    payload.refresh_from_db()


def erase_all(payload_ids: Iterable[int], *, everywhere: bool) -> int:
    """Like `erase`, for those not erased yet. `everywhere`: also from what was logged and recorded while their calls
    ran, as a person's request demands; retention has its own limits for that. Returns their number."""
    ids = list(payload_ids)
    if not ids:
        return 0
    marks = ", ".join(["%s"] * len(ids))
    with database().cursor() as cursor:
        cursor.execute(
            f"UPDATE {_TABLE} SET text = '', blob = NULL, sealed = NULL, key_id = '', salt = %s, erased_at = %s "  # noqa: S608  # names of our own models
            f"WHERE id IN ({marks}) AND erased_at IS NULL",
            [param(Payload, "salt", b""), param(Payload, "erased_at", timezone.now()), *ids],
        )
        count = int(cursor.rowcount)
        cursor.execute(f"DELETE FROM {Unredacted._meta.db_table} WHERE payload_id IN ({marks})", ids)  # noqa: S608  # the same
    payload_erased.send(sender=Payload, payload_ids=ids, everywhere=everywhere)
    return count


# --- redacted ones until they are sent ---------------------------------------------------------------------------------
def unredacted(text: str) -> Unredacted:
    """The original text of a payload with masked values, as a row that is not written yet and has no payload."""
    row = Unredacted()
    row.sealed, row.key_id = seal_bytes(
        text.encode("utf-8", "surrogatepass"), table=Unredacted._meta.db_table, uid=row.uid, field="sealed"
    )
    return row


def to_send(payload: Payload) -> str | None:
    """The content for the server: without masks, even if the stored content has some. None if it is gone."""
    if not payload.redacted:
        return read(payload)
    row = Unredacted.objects.filter(payload_id=payload.pk).first()
    if row is None:
        return None
    opened = open_bytes(row.sealed, key_id=row.key_id, table=Unredacted._meta.db_table, uid=row.uid, field="sealed")
    return opened.decode("utf-8", "surrogatepass")


def sent(payload_id: int) -> None:
    """Delete the content without masks, which is no longer needed."""
    Unredacted.objects.filter(payload_id=payload_id).delete()


def _content(payload: Payload) -> bytes:
    if payload.sealed is not None:
        opened = open_bytes(payload.sealed, key_id=payload.key_id, table=_TABLE, uid=payload.uid, field="sealed")
        return zlib.decompress(opened[1:]) if opened[:1] == _PACKED else opened[1:]
    if payload.blob is not None:
        return zlib.decompress(bytes(payload.blob))
    return payload.text.encode("utf-8", "surrogatepass")


def _compressed(data: bytes) -> bytes:
    """Base64 of images and archives has no repeats to find: Huffman coding alone makes it just as small in a fifth of
    the time (9 MB: 45 ms instead of 230)."""
    middle = len(data) // 2
    sample = data[middle : middle + _SAMPLE_BYTES]
    dense = len(zlib.compress(sample, level=1)) > _DENSE * len(sample)
    engine = zlib.compressobj(6, strategy=zlib.Z_HUFFMAN_ONLY if dense else zlib.Z_DEFAULT_STRATEGY)
    return engine.compress(data) + engine.flush()

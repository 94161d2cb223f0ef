"""Arguments and results in rows of their own: an event holds only their salted digest, so one can be erased."""

import hashlib
import os
import zlib

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from servers.audit.statements import Insert
from servers.enums import PayloadKind
from servers.json.canonical import clean
from servers.models import Payload
from servers.signals import payload_erased

_SALT_BYTES = 16
_PREVIEW_CHARS = 200
insert = Insert(Payload)


def store(kind: PayloadKind, text: str) -> Payload:
    """Written in the current transaction. Above INLINE_PAYLOAD_BYTES the text stands compressed in `blob`."""
    return insert(made(kind, text))


def made(kind: PayloadKind, text: str) -> Payload:
    """The row, not written yet."""
    data = text.encode("utf-8", "surrogatepass")
    salt = os.urandom(_SALT_BYTES)
    inline = len(data) <= settings.INLINE_PAYLOAD_BYTES and _storable(text)
    return Payload(
        kind=kind,
        salt=salt,
        digest=digest(salt, data),
        size=len(data),
        text=text if inline else "",
        blob=None if inline else zlib.compress(data, level=6),
    )


def digest(salt: bytes, data: bytes) -> str:
    return hashlib.sha256(salt + data).hexdigest()


def read(payload: Payload) -> str | None:
    """The text as it was stored; None once it was erased."""
    if payload.erased_at is not None:
        return None
    return payload.text if payload.blob is None else _unpacked(payload).decode("utf-8", "surrogatepass")


def indexable(payload: Payload) -> bool:
    """Whether its words may also stand outside of it: in the index of the search and in a preview."""
    return payload.erased_at is None


def preview(payload: Payload, text: str) -> str:
    """The beginning of the `text` of a payload, for lists; empty if nothing of it may stand outside."""
    if not indexable(payload) or text == "{}":
        return ""
    return clean(text[:_PREVIEW_CHARS])


def intact(payload: Payload) -> bool:
    """Whether what is stored still has the digest that the audit event names. An erased one is intact."""
    if payload.erased_at is not None:
        return True
    try:
        data = payload.text.encode("utf-8", "surrogatepass") if payload.blob is None else _unpacked(payload)
    except zlib.error:
        return False
    return digest(bytes(payload.salt), data) == payload.digest


def erase(payload: Payload) -> None:
    """Remove the content and the salt for good; digest and chain stay as they are."""
    payload.text, payload.blob, payload.salt, payload.erased_at = "", None, b"", timezone.now()
    with transaction.atomic():
        payload.save(update_fields=["text", "blob", "salt", "erased_at"])
        payload_erased.send(sender=Payload, payload_id=payload.pk)


def _unpacked(payload: Payload) -> bytes:
    return zlib.decompress(bytes(payload.blob or b""))


def _storable(text: str) -> bool:
    """PostgreSQL's text takes neither NUL nor lone surrogates; such content stands in the blob."""
    if text.isascii():
        return "\0" not in text
    return not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)

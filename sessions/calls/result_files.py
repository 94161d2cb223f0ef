"""The parts of a stored result as files: bytes, a type that no browser runs, a safe file name."""

import base64
import binascii
import json
import mimetypes
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from threading import Lock, Timer
from typing import Any
from urllib.parse import unquote

from servers.audit import payloads
from servers.media_types import ACTIVE, declared_format, extensions_of, format_of
from servers.models import Payload
from sessions.mcp.core import methods

OCTETS = "application/octet-stream"
_NAME_CHARS = 80
#: types that a browser could run or render as a document (scripts, styles, markup) are not included
_INERT = re.compile(
    r"(?:image|audio|video|font)/(?!svg)[a-z0-9.-]+"
    r"|text/(?:plain|csv|markdown|tab-separated-values|calendar|vcard)"
    r"|application/(?:pdf|json|zip|gzip|x-tar|x-7z-compressed|rtf|msword|epub\+zip|vnd\.[a-z0-9.-]+)"
)


@dataclass(frozen=True)
class File:
    """`viewable`: its bytes match its type, and browsers show that type without running anything in it."""

    name: str
    mime: str
    data: bytes
    viewable: bool = False


class RecentItems:
    """The contents of the results that were shown last, so that a page with twenty pictures, or a player that requests
    ranges, does not parse the result again each time. Limited in size and to a few seconds; the row decides whether the
    contents may still be shown.
    """

    BYTES = 32 * 1024 * 1024
    SECONDS = 30.0

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], tuple[float, int, list[Any]]] = OrderedDict()
        self._lock = Lock()
        self._timer: Timer | None = None

    def of(self, payload: Payload, method: str) -> list[Any] | None:
        """None once the payload is erased. Raises SealError, as payloads.read does."""
        if payload.erased_at is not None:
            self.forget([payload.pk])
            return None
        key = (payload.pk, f"{payload.uid} {method}")
        with self._lock:
            if found := self._kept.get(key):
                return found[2]
        text = payloads.read(payload)
        if text is None:
            return None
        items = [_only_file(item) for item in items_of(method, _object(text))]
        if payload.size <= self.BYTES:
            self._keep(key, payload.size, items)
        return items

    def forget(self, payload_ids: Iterable[int]) -> None:
        gone = set(payload_ids)
        with self._lock:
            for key in [key for key in self._kept if key[0] in gone]:
                del self._kept[key]

    def _keep(self, key: tuple[int, str], size: int, items: list[Any]) -> None:
        with self._lock:
            self._kept[key] = (time.monotonic() + self.SECONDS, size, items)
            while sum(entry[1] for entry in self._kept.values()) > self.BYTES:
                self._kept.popitem(last=False)
            self._wait()

    def _wait(self) -> None:
        if self._timer is None and self._kept:
            self._timer = Timer(self.SECONDS, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        now = time.monotonic()
        with self._lock:
            for key in [key for key, entry in self._kept.items() if entry[0] <= now]:
                del self._kept[key]
            self._timer = None
            self._wait()


recent = RecentItems()


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _only_file(item: Any) -> Any:
    """The item without the parts that `file_of` does not read; None if it is not a file. An image or a recording is
    reduced to its data, as pages show it."""
    if is_media(item):
        return {name: item[name] for name in ("mimeType", "data") if isinstance(item.get(name), str)}
    inner = _inner(item)
    if not isinstance(inner, dict):
        return None
    return {
        name: inner[name] for name in ("uri", "mimeType", "text", "blob", "data") if isinstance(inner.get(name), str)
    }


def items_of(method: str, result: Mapping[str, Any]) -> list[Any]:
    """The contents of a result, flat, in the order of its blocks."""
    if method == methods.RESOURCES_READ:
        return _list(result.get("contents"))
    if method == methods.PROMPTS_GET:
        return list(chain.from_iterable(map(contents_of_message, _list(result.get("messages")))))
    return _list(result.get("content"))


def as_messages(contents: list[Any]) -> list[Any]:
    """The contents of a resource as messages of a prompt."""
    return [{"role": "user", "content": {"type": "resource", "resource": item}} for item in contents]


def file_of(item: Any, stem: str) -> File | None:
    """The file of a content block or of a resource content; None if it has neither bytes nor text. `stem` names content
    without a name."""
    if not isinstance(item, dict):
        return None
    inner = _inner(item)
    data = bytes_of(inner)
    if data is None or not isinstance(inner, dict):
        return None
    mime = mime_of(inner)
    textual = not isinstance(inner.get("blob"), str) and not isinstance(inner.get("data"), str)
    served, viewable = _text_type(mime, data) if textual else _type(mime, data)
    return File(_name(inner.get("uri"), served, stem), served, data, viewable)


def _text_type(mime: str, data: bytes) -> tuple[str, bool]:
    if _INERT.fullmatch(mime):
        return mime, False
    return ("application/json" if _is_json(data) else "text/plain"), False


def _is_json(data: bytes) -> bool:
    if data[:100].lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _type(mime: str, data: bytes) -> tuple[str, bool]:
    """The type of the bytes. The declared type counts only if the bytes cannot tell."""
    found, declared = format_of(data), declared_format(mime)
    if found is not None and found.mimes:
        return (mime if mime in found.mimes else found.mime), found.opens
    if found is ACTIVE or declared is not None or not _INERT.fullmatch(mime):
        return OCTETS, False
    return mime, False


def bytes_of(item: Any) -> bytes | None:
    """The bytes of `text`, `blob` or `data`; None if none of them is readable."""
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("text"), str):
        return str(item["text"]).encode("utf-8", "surrogatepass")
    encoded = item.get("blob") if isinstance(item.get("blob"), str) else item.get("data")
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except (binascii.Error, ValueError):
        return None


def is_media(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in ("image", "audio")


def text_of(item: Any) -> str | None:
    """The text of a content block or of a resource content."""
    if is_media(item):
        return None
    inner = _inner(item)
    return inner["text"] if isinstance(inner, dict) and isinstance(inner.get("text"), str) else None


def mime_of(item: Mapping[str, Any]) -> str:
    """The MIME type without parameters."""
    return str(item.get("mimeType") or "").lower().partition(";")[0].strip()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _inner(item: Any) -> Any:
    """The contents of an embedded resource; anything else unchanged."""
    return item.get("resource") if isinstance(item, dict) and item.get("type") == "resource" else item


def contents_of_message(message: Any) -> list[Any]:
    """The specification allows one content per message; a list of contents is accepted too."""
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, list) else [content]


def _name(uri: Any, mime: str, stem: str) -> str:
    """The last part of the URI, with the extension of the served type."""
    last = unquote(str(uri or "")[-500:]).partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-")[-_NAME_CHARS:].strip(".-")
    base, dot, _ = plain.rpartition(".")
    known = extensions_of(mime)
    if plain and dot and (plain.lower().endswith(known) if known else _is_of(plain, mime)):
        return plain
    extension = known[0] if known else mimetypes.guess_extension(mime) if mime != OCTETS else None
    return f"{(base if dot else plain) or stem}{extension or '.bin'}"


def _is_of(name: str, mime: str) -> bool:
    return mime != OCTETS and mimetypes.guess_type(name)[0] == mime

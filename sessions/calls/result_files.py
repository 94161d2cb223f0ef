"""The parts of a stored result as files: bytes, a type that no browser runs, a safe file name."""

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any
from urllib.parse import unquote

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
    name: str
    mime: str
    data: bytes


def items_of(method: str, result: Mapping[str, Any]) -> list[Any]:
    """The contents of a result, flat, in the order of its blocks."""
    if method == methods.RESOURCES_READ:
        return _list(result.get("contents"))
    if method == methods.PROMPTS_GET:
        return list(chain.from_iterable(_said(message) for message in _list(result.get("messages"))))
    return _list(result.get("content"))


def file_of(item: Any, stem: str) -> File | None:
    """The file of a content block or of a resource content; None if it has neither bytes nor text. `stem` names content
    without a name."""
    if not isinstance(item, dict):
        return None
    inner = item.get("resource") if item.get("type") == "resource" else item
    data = bytes_of(inner)
    if data is None or not isinstance(inner, dict):
        return None
    mime = mime_of(inner)
    textual = not isinstance(inner.get("blob"), str) and not isinstance(inner.get("data"), str)
    served = mime if _INERT.fullmatch(mime) else "text/plain" if textual else OCTETS
    return File(_name(inner.get("uri"), served, stem), served, data)


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


def mime_of(item: Mapping[str, Any]) -> str:
    """The MIME type without parameters."""
    return str(item.get("mimeType") or "").lower().partition(";")[0].strip()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _said(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, list) else [content]


def _name(uri: Any, mime: str, stem: str) -> str:
    """The last part of the URI, with the extension of the served type."""
    last = unquote(str(uri or "")[-500:]).partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-")[-_NAME_CHARS:].strip(".-")
    base, dot, _ = plain.rpartition(".")
    if plain and dot and mime != OCTETS and mimetypes.guess_type(plain)[0] == mime:
        return plain
    extension = ".bin" if mime == OCTETS else mimetypes.guess_extension(mime) or ".bin"
    return f"{(base if dot else plain) or stem}{extension}"

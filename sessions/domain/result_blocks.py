"""The content of a tool's result, block by block (MCP 2025-11-25, server/tools, Tool Result)."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

BLOCKS = 100
TEXT_CHARS = 64_000
MEDIA_BYTES = 400_000
IMAGES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
SOUNDS = {
    "audio/wav",
    "audio/x-wav",
    "audio/mpeg",
    "audio/mp3",
    "audio/ogg",
    "audio/webm",
    "audio/flac",
    "audio/aac",
    "audio/mp4",
}


@dataclass(frozen=True)
class Block:
    """`kind` picks the template's branch: text, json, image, audio, link, binary, note.

    `source` is a data: URI that passed the checks below; `cut` when `text` is only a beginning; `role` of a prompt's
    message; `size` in bytes and `digest` (SHA-256) of a content; `position` among the contents, to download it.
    """

    kind: str
    title: str = ""
    text: str = ""
    value: Any = None
    source: str = ""
    uri: str = ""
    mime: str = ""
    cut: bool = False
    role: str = ""
    size: int | None = None
    digest: str = ""
    position: int | None = None


class Budget:
    """What media one card may carry in all."""

    def __init__(self) -> None:
        self.left = MEDIA_BYTES

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


def blocks_of(content: Any) -> list[Block]:
    if not isinstance(content, list):
        return []
    budget = Budget()
    blocks = [block_of(item, budget) for item in content[:BLOCKS]]
    if len(content) > BLOCKS:
        blocks.append(Block("note", text=f"{len(content) - BLOCKS} more blocks are in the raw result."))
    return blocks


def block_of(item: Any, budget: Budget) -> Block:
    if not isinstance(item, dict):
        return Block("json", "Not a content block", value=item)
    match item.get("type"):
        case "text" if isinstance(item.get("text"), str):
            return text_block(item["text"])
        case "image":
            return media_block(item, "image", budget)
        case "audio":
            return media_block(item, "audio", budget)
        case "resource_link":
            return _link(item)
        case "resource" if isinstance(item.get("resource"), dict):
            return _embedded(item["resource"], budget)
        case kind:
            return Block("json", f"Unknown type “{str(kind)[:60]}”", value=item)


def text_block(text: str, title: str = "", uri: str = "") -> Block:
    if text[:100].lstrip()[:1] in ("{", "[") and len(text) <= TEXT_CHARS:
        try:
            return Block("json", title or "JSON text", value=json.loads(text), uri=uri)
        except (ValueError, RecursionError):
            pass  # it only looked like JSON: shown as the text it is
    return Block("text", title, text[:TEXT_CHARS], uri=uri, cut=len(text) > TEXT_CHARS)


def media_block(item: dict[str, Any], kind: str, budget: Budget) -> Block:
    mime, data = str(item.get("mimeType", "")).lower(), item.get("data")
    if not isinstance(data, str):
        return Block("json", f"{kind.capitalize()} without data", value=item)
    known = mime in (IMAGES if kind == "image" else SOUNDS)
    if not known:
        return Block("note", text=f"{kind.capitalize()} of type “{mime[:60]}” is not shown. It is in the raw result.")
    if not budget.take(len(data)):
        return Block("note", text=f"{kind.capitalize()} of {len(data):,} base64 characters is too large to show here.")
    if not _ismedia_block(data, mime):
        return Block("note", text=f"{kind.capitalize()} whose data is not {mime}. It is in the raw result.")
    return Block(kind, mime=mime, source=f"data:{mime};base64,{data}")


def _ismedia_block(data: str, mime: str) -> bool:
    """Whole base64, and for an image the signature of its type: nothing else reaches a data: URI."""
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return mime in SOUNDS or raw.startswith(IMAGES[mime])


def _link(item: dict[str, Any]) -> Block:
    """Shown, never opened: the address is the server's word."""
    title = str(item.get("title") or item.get("name") or "")[:300]
    text = str(item.get("description") or "")[:2_000]
    return Block("link", title, text, uri=str(item.get("uri", ""))[:2_000], mime=str(item.get("mimeType", ""))[:100])


def _embedded(resource: dict[str, Any], budget: Budget) -> Block:
    uri, mime = str(resource.get("uri", ""))[:2_000], str(resource.get("mimeType", ""))[:100]
    if isinstance(resource.get("text"), str):
        return text_block(resource["text"], "Embedded resource", uri)
    blob = resource.get("blob")
    if isinstance(blob, str) and mime.lower() in IMAGES:
        return media_block({"mimeType": mime, "data": blob}, "image", budget)
    if isinstance(blob, str):
        size = len(blob) * 3 // 4
        return Block(
            "note", "Embedded resource", f"Binary content, about {size:,} bytes ({mime or 'no type'}).", uri=uri
        )
    return Block("json", "Embedded resource", value=resource, uri=uri)

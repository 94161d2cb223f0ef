"""The content of a tool's result, block by block (MCP 2025-11-25, server/tools, Tool Result)."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from servers.image_types import IMAGES
from sessions.calls.result_files import bytes_of, mime_of

BLOCKS = 100
TEXT_CHARS = 64_000
URI_CHARS = 2_000
#: media embedded in one card: at most this many base64 characters; an image shown by URL: at most this many bytes
MEDIA_BYTES = 400_000
SHOWN_BYTES = 8 * 1024 * 1024
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

    `source` is a data: URI that passed the checks below. It is empty for media that our own URL serves.
    `rendered`: the text as sanitised HTML; `remark` says why a Markdown text has none (see markdown_blocks).
    `cut`: `text` or `uri` is only a beginning. `role`: of a prompt's message. `size` (bytes) and `digest` (SHA-256): of
    a content. `position`: of the content in its result, to download it.
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
    rendered: str = ""
    remark: str = ""


class Budget:
    """How much media one card may embed in total."""

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
    blocks = [block_of(item, budget, position) for position, item in enumerate(content[:BLOCKS])]
    if len(content) > BLOCKS:
        blocks.append(Block("note", text=f"{len(content) - BLOCKS} more blocks in the raw result."))
    return blocks


def block_of(item: Any, budget: Budget, position: int) -> Block:
    """`position`: of the item among the contents of its result (see result_files.items_of)."""
    if not isinstance(item, dict):
        return Block("json", "Not a content block", value=item)
    match item.get("type"):
        case "text" if isinstance(item.get("text"), str):
            return text_block(item["text"])
        case "image" | "audio" as kind:
            return replace(media_block(item, kind, budget), position=_readable(item, position))
        case "resource_link":
            return _link(item)
        case "resource" if isinstance(item.get("resource"), dict):
            return replace(_embedded(item["resource"], budget), position=_readable(item["resource"], position))
        case kind:
            return Block("json", f"Unknown type “{str(kind)[:60]}”", value=item)


def text_block(text: str, title: str = "", uri: str = "") -> Block:
    if text[:100].lstrip()[:1] in ("{", "[") and len(text) <= TEXT_CHARS:
        try:
            return Block("json", title or "JSON text", value=json.loads(text), uri=uri)
        except (ValueError, RecursionError):
            pass  # it only looked like JSON: show it as text
    return Block("text", title, text[:TEXT_CHARS], uri=uri, cut=len(text) > TEXT_CHARS)


def media_block(item: dict[str, Any], kind: str, budget: Budget) -> Block:
    mime, data = str(item.get("mimeType", "")).lower(), item.get("data")
    if not isinstance(data, str):
        return Block("json", f"{kind.capitalize()} without data", value=item)
    known = mime in (IMAGES if kind == "image" else SOUNDS)
    raw = bytes_of({"data": data})
    size = None if raw is None else len(raw)
    named = kind.capitalize()
    if not known:
        return Block("note", text=f"{named} of type “{mime[:60]}” is not shown.", mime=mime[:100], size=size)
    # Valid base64 of a known type, and for an image the signature of that type: nothing else gets into a `src`.
    if raw is None or not (mime in SOUNDS or raw.startswith(IMAGES[mime])):
        return Block("note", text=f"{named} whose data is not {mime}.", size=size)
    if budget.take(len(data)):
        return Block(kind, mime=mime, source=f"data:{mime};base64,{data}", size=size)
    if len(raw) > SHOWN_BYTES:
        return Block("note", text=f"{named} is too large to show here.", mime=mime, size=size)
    return Block(kind, mime=mime, size=size)


def _link(item: dict[str, Any]) -> Block:
    """Only a person opens a link, as a resource of the same server: the server chose the URI."""
    title = str(item.get("title") or item.get("name") or "")[:300]
    text = str(item.get("description") or "")[:2_000]
    uri, mime = str(item.get("uri", "")), str(item.get("mimeType", ""))[:100]
    return Block("link", title, text, uri=uri[:URI_CHARS], mime=mime, cut=len(uri) > URI_CHARS)


def _readable(item: dict[str, Any], position: int) -> int | None:
    return None if bytes_of(item) is None else position


def _embedded(resource: dict[str, Any], budget: Budget) -> Block:
    uri, mime = str(resource.get("uri", ""))[:2_000], str(resource.get("mimeType", ""))[:100]
    if isinstance(resource.get("text"), str):
        return text_block(resource["text"], "Embedded resource", uri)
    blob = resource.get("blob")
    kind = mime_of(resource)
    if isinstance(blob, str) and kind in IMAGES:
        return replace(media_block({"mimeType": kind, "data": blob}, "image", budget), uri=uri)
    if isinstance(blob, str) and kind in SOUNDS:
        return replace(media_block({"mimeType": kind, "data": blob}, "audio", budget), uri=uri)
    if isinstance(blob, str) and (data := bytes_of(resource)) is not None:
        digest = hashlib.sha256(data).hexdigest()
        return Block("binary", "Embedded resource", uri=uri, mime=mime, size=len(data), digest=digest)
    return Block("json", "Embedded resource", value=resource, uri=uri)

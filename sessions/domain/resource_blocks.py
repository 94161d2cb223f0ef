"""The contents of a resource, one block each (MCP, server/resources, *Resource Contents*)."""

import base64
import binascii
import hashlib
from dataclasses import replace
from typing import Any

from sessions.domain.result_blocks import BLOCKS, IMAGES, SOUNDS, Block, Budget, media_block, text_block

_LABEL = 200


def contents_of(contents: Any, asked: str = "") -> list[Block]:
    """`asked`: the URI that was read; a content names its own where it is another."""
    if not isinstance(contents, list):
        return []
    budget = Budget()
    blocks = [_content(item, asked, position, budget) for position, item in enumerate(contents[:BLOCKS])]
    if len(contents) > BLOCKS:
        blocks.append(Block("note", text=f"{len(contents) - BLOCKS} more contents are in the raw result."))
    return blocks


def decoded(item: Any) -> bytes | None:
    """The bytes of one content; None where it has none that can be read."""
    if not isinstance(item, dict):
        return None
    if isinstance(item.get("text"), str):
        return str(item["text"]).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(item["blob"], validate=True) if isinstance(item.get("blob"), str) else None
    except (binascii.Error, ValueError):
        return None


def _content(item: Any, asked: str, position: int, budget: Budget) -> Block:
    data = decoded(item)
    if data is None:
        return Block("json", "Neither text nor whole base64", value=item)
    uri, mime = str(item.get("uri", "")), str(item.get("mimeType") or "")[:_LABEL]
    block = _shown(item, mime, budget)
    return replace(
        block,
        uri="" if uri == asked else uri[:2_000],
        mime=mime,
        size=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        position=position,
    )


def _shown(item: dict[str, Any], mime: str, budget: Budget) -> Block:
    """Markdown and HTML are texts like any other: nothing of a server becomes markup here."""
    if isinstance(item.get("text"), str):
        block = text_block(item["text"], "")
        return replace(block, title="", text=item["text"]) if block.kind == "json" else block
    kind = mime.lower().partition(";")[0].strip()
    if kind in IMAGES or kind in SOUNDS:
        media = media_block({"mimeType": kind, "data": item["blob"]}, "image" if kind in IMAGES else "audio", budget)
        return media
    return Block("binary")

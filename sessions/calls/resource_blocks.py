"""The contents of a resource, one block each (MCP, server/resources, *Resource Contents*)."""

import hashlib
from dataclasses import replace
from typing import Any

from sessions.calls.blocks import BLOCKS, Block, Budget, blob_block, text_block
from sessions.calls.result_files import bytes_of

_LABEL = 200


def contents_of(contents: Any, asked: str = "") -> list[Block]:
    """`asked`: the URI that was read. A block shows its own URI only if it differs."""
    if not isinstance(contents, list):
        return []
    budget = Budget()
    blocks = [_content(item, asked, position, budget) for position, item in enumerate(contents[:BLOCKS])]
    if len(contents) > BLOCKS:
        blocks.append(Block("note", text=f"{len(contents) - BLOCKS} more content items in the raw result."))
    return blocks


def _content(item: Any, asked: str, position: int, budget: Budget) -> Block:
    data = bytes_of(item)
    if data is None:
        return Block("json", "Neither text nor valid base64", value=item)
    uri, mime = str(item.get("uri", "")), str(item.get("mimeType") or "")[:_LABEL]
    block = _shown(item, budget)
    return replace(
        block,
        uri="" if uri == asked else uri[:2_000],
        mime=mime,
        size=len(data),
        digest=hashlib.sha256(data).hexdigest(),
        position=position,
    )


def _shown(item: dict[str, Any], budget: Budget) -> Block:
    """HTML is shown as text; `with_markdown` decides what is Markdown."""
    if isinstance(item.get("text"), str):
        block = text_block(item["text"], "")
        return replace(block, title="", text=item["text"]) if block.kind == "json" else block
    return blob_block(item, budget) or Block("binary")

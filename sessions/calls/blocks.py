"""The content of a tool result, block by block (MCP 2025-11-25, server/tools, Tool Result)."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from servers.json import text as json_text
from servers.kit.long_table import may_have_table
from servers.media_types import declared_format, format_of, kind_of, mismatch
from sessions.calls.result_files import bytes_of, mime_of

BLOCKS = 100
TEXT_CHARS = 64_000
URI_CHARS = 2_000
#: media embedded in a page if no URL serves them: base64 characters in total; media shown by URL: bytes of each
MEDIA_BYTES = 400_000
SHOWN_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Block:
    """`kind` selects the template's branch: text, json, image, audio, video, link, binary, note.

    `source` is a data: URI that passed the checks below, for contents without a call; those of a call have a URL of
    ours. `rendered`: the text as sanitized HTML. `remark`: why a Markdown text has none (see markdown_blocks), or a
    declared type that does not match the bytes. `opens`: browsers can show it in a separate tab.
    `cut`: `text` or `uri` is truncated. `role`: of a prompt's message. `size` (bytes) and `digest` (SHA-256): of the
    content. `position`: of the content in its result, to download it. `tabular`: `text` may also be shown as a table.
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
    tabular: bool = False
    opens: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is a complete text without further information."""
        more = self.title or self.uri or self.role or self.remark or self.rendered or self.cut or self.tabular
        return self.kind == "text" and not more and self.size is None

    @property
    def passable(self) -> bool:
        """Whether it may become an argument of another tool."""
        return self.kind in ("text", "json") and self.position is not None

    @property
    def shown_size(self) -> int:
        """The size in bytes of the shown part, `text`."""
        return len(self.text.encode("utf-8", "surrogatepass"))


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
            return located(text_block(item["text"]), item, position)
        case "image" | "audio" as kind:
            return replace(media_block(item, kind, budget), position=_readable({"data": item.get("data")}, position))
        case "resource_link":
            return _link(item)
        case "resource" if isinstance(item.get("resource"), dict):
            inner = item["resource"]
            if isinstance(inner.get("text"), str):
                return located(_embedded(inner, budget), inner, position)
            return replace(_embedded(inner, budget), position=_readable(inner, position))
        case kind:
            return Block("json", f"Unknown type “{str(kind)[:60]}”", value=item)


def text_block(text: str, title: str = "", uri: str = "") -> Block:
    if text[:100].lstrip()[:1] in ("{", "[") and len(text) <= TEXT_CHARS:
        try:
            return Block("json", title or "JSON text", value=json_text.exact(text), uri=uri)
        except json_text.JsonProblem:
            pass  # it only looked like JSON, or its value would say something else: show it as text
    cut = len(text) > TEXT_CHARS
    return Block("text", title, text[:TEXT_CHARS], uri=uri, cut=cut, tabular=cut and may_have_table(text))


def located(block: Block, item: dict[str, Any], position: int) -> Block:
    """Add the position, and the full size if the text is truncated."""
    size = len(item["text"].encode("utf-8", "surrogatepass")) if block.cut else None
    return replace(block, size=size, position=position)


def media_block(item: dict[str, Any], kind: str, budget: Budget) -> Block:
    """The actual bytes determine how they are shown; a wrong type from the server is mentioned."""
    mime, data = mime_of(item), item.get("data")
    named = kind.capitalize()
    if not isinstance(data, str):
        return Block("json", f"{named} without data", value=item)
    raw = bytes_of({"data": data})
    if raw is None:
        return Block("note", text=f"{named} whose data is not valid base64.", mime=mime[:100])
    found = format_of(raw)
    if found is None or found.kind == "binary":
        told = mismatch(mime, raw) or f"{named} of type “{mime[:60]}” is not shown."
        return Block("note", text=told, mime=mime[:100], size=len(raw), opens=found is not None and found.opens)
    shown = mime if mime in found.mimes else found.mime
    block = Block(kind_of(mime, found), mime=shown, size=len(raw), remark=mismatch(mime, raw), opens=True)
    if len(raw) > SHOWN_BYTES:
        return replace(block, kind="note", text=f"{named} is too large to show here. Download it.")
    return replace(block, source=f"data:{shown};base64,{data}") if budget.take(len(data)) else block


def blob_block(resource: dict[str, Any], budget: Budget) -> Block | None:
    """The block of a resource with readable bytes; None without them."""
    data = bytes_of(resource)
    if data is None or not isinstance(resource.get("blob"), str):
        return None
    mime, found = mime_of(resource), format_of(data)
    if found is not None and found.kind != "binary":
        return media_block({"mimeType": mime, "data": resource["blob"]}, kind_of(mime, found), budget)
    opens = found is not None and found.opens
    promised = declared_format(mime)
    if promised is not None and promised.kind != "binary":
        return media_block({"mimeType": mime, "data": resource["blob"]}, promised.kind, budget)
    digest = hashlib.sha256(data).hexdigest()
    return Block("binary", mime=mime[:100], size=len(data), digest=digest, remark=mismatch(mime, data), opens=opens)


def _link(item: dict[str, Any]) -> Block:
    """Links are opened by people only, as resources of the same server: the server chose the URI."""
    title = str(item.get("title") or item.get("name") or "")[:300]
    text = str(item.get("description") or "")[:2_000]
    uri, mime = str(item.get("uri", "")), str(item.get("mimeType", ""))[:100]
    try:
        uri.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no page URL can contain
        return Block("json", "Link without a valid URI", value=item)
    return Block("link", title, text, uri=uri[:URI_CHARS], mime=mime, cut=len(uri) > URI_CHARS)


def _readable(item: dict[str, Any], position: int) -> int | None:
    return None if bytes_of(item) is None else position


def _embedded(resource: dict[str, Any], budget: Budget) -> Block:
    uri = str(resource.get("uri", ""))[:2_000]
    if isinstance(resource.get("text"), str):
        return text_block(resource["text"], "Embedded resource", uri)
    block = blob_block(resource, budget)
    if block is not None:
        return replace(block, title="Embedded resource", uri=uri)
    return Block("json", "Embedded resource", value=resource, uri=uri)

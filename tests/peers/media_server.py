"""A stdio peer whose answers are large, binary or wrong. Standard library only.

One tool, one prompt and one resource template; the argument `kind` (the last part of the URI) chooses the answer.
"""

import base64
import json
import struct
import sys
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

PNG_BYTES, PDF_BYTES, JSON_BYTES, WAV_BYTES, VIDEO_BYTES = 3_000_000, 7_000_000, 6_000_000, 3_000_000, 3_000_000


def noise(size: int) -> bytes:
    """The same bytes each time, which no compression makes smaller."""
    return Random(size).randbytes(size)


def png(size: int) -> bytes:
    """A valid picture of about `size` bytes."""
    side = int((size / 3) ** 0.5)
    rows = b"".join(b"\0" + noise(side * 3) for _ in range(side))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b"")


def wav(size: int) -> bytes:
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 44_100, 88_200, 2, 16) + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", size + 36) + head + noise(size)


def pdf(size: int) -> bytes:
    return b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + noise(size)


def webm(size: int) -> bytes:
    """Only the head is one: what a browser asks of the video matters, not its picture."""
    return b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm" + noise(size)


def rows(size: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"row {number}", "open": True, "note": "x" * 100} for number in range(size // 160)]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def media(kind: str, mime: str, data: bytes) -> dict[str, Any]:
    return {"type": kind, "mimeType": mime, "data": encoded(data)}


def file(mime: str, data: bytes, uri: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": encoded(data)}}


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="parent.pwned=1"><script>parent.pwned=1</script></svg>'
HTML = b"<!doctype html><script>parent.pwned=1</script>"
BLOCKS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "png": lambda: [media("image", "image/png", png(PNG_BYTES))],
    "pdf": lambda: [file("application/pdf", pdf(PDF_BYTES), "file:///report.pdf")],
    "json": lambda: [{"type": "text", "text": json.dumps(rows(JSON_BYTES))}],
    "structured": list,
    "wav": lambda: [media("audio", "audio/wav", wav(WAV_BYTES))],
    "webm": lambda: [file("video/webm", webm(VIDEO_BYTES), "file:///film.webm")],
    "gallery": lambda: [media("image", "image/png", png(250_000)) for _ in range(20)],
    "hostile": lambda: [
        media("image", "image/png", HTML),
        media("image", "image/svg+xml", SVG),
        file("text/html", HTML, "file:///page.html"),
        file("application/pdf", HTML, "file:///false.pdf"),
        media("image", "image/jpeg", png(3_000)),
        {"type": "image", "mimeType": "image/png", "data": "§ not base64"},
        media("image", "image/png", b""),
        file("application/pdf", b"", "file:///empty.pdf"),
    ],
    "many": lambda: [{"type": "text", "text": f"block {number}"} for number in range(10_000)],
}
KIND = {"type": "string", "enum": [*BLOCKS]}
LISTS = {
    "tools/list": {
        "tools": [
            {
                "name": "answer",
                "inputSchema": {"type": "object", "properties": {"kind": KIND}, "required": ["kind"]},
                "annotations": {"readOnlyHint": True},
            }
        ]
    },
    "resources/list": {"resources": [{"uri": f"media://{kind}", "name": kind} for kind in BLOCKS]},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": [{"name": "answer", "arguments": [{"name": "kind", "required": True}]}]},
    "ping": {},
}


def content_of(block: dict[str, Any], uri: str) -> dict[str, Any]:
    """A block of a tool as a content of a resource."""
    if block["type"] == "resource":
        return {**block["resource"], "uri": uri}
    if block["type"] == "text":
        return {"uri": uri, "mimeType": "application/json", "text": block["text"]}
    return {"uri": uri, "mimeType": block["mimeType"], "blob": block["data"]}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": params.get("protocolVersion", "2025-11-25"),
                "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
                "serverInfo": {"name": "media-peer", "version": "1"},
            }
        case "tools/call":
            kind = params["arguments"]["kind"]
            structured = {"structuredContent": {"rows": rows(JSON_BYTES)}} if kind == "structured" else {}
            return {"content": BLOCKS[kind](), **structured}
        case "resources/read":
            uri = params["uri"]
            return {"contents": [content_of(block, uri) for block in BLOCKS[uri.partition("://")[2]]()]}
        case "prompts/get":
            blocks = BLOCKS[params["arguments"]["kind"]]()
            return {"messages": [{"role": "user", "content": block} for block in blocks]}
    return LISTS.get(method)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = result_of(message["method"], message.get("params") or {})
        missing = {"error": {"code": -32601, "message": "Method not found"}}
        end = missing if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **end}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

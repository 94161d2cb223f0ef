"""A stdio peer on the official Python SDK 2.x whose answers are large: a picture, a document, rows of JSON.

Runs in the environment of the peer sdk2, so it imports nothing of ours but media_server, which has only the standard
library.
"""

import base64
import json

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import BlobResourceContents, EmbeddedResource, TextContent
from media_server import JSON_BYTES, PDF_BYTES, PNG_BYTES, pdf, png, rows

server = MCPServer("large-peer", log_level="WARNING")
_PICTURE, _DOCUMENT = png(PNG_BYTES), pdf(PDF_BYTES)


@server.tool()
def picture() -> Image:
    """A PNG of 3 MB."""
    return Image(data=_PICTURE, format="png")


@server.tool(structured_output=False)
def document() -> EmbeddedResource:
    """A PDF of 7 MB."""
    blob = base64.b64encode(_DOCUMENT).decode()
    return EmbeddedResource(
        type="resource",
        resource=BlobResourceContents(uri="file:///report.pdf", mime_type="application/pdf", blob=blob),
    )


@server.tool(structured_output=False)
def table(size: int = JSON_BYTES) -> TextContent:
    """A list of objects as JSON text of about `size` bytes."""
    return TextContent(type="text", text=json.dumps(rows(size)))


@server.tool()
def length(text: str, notes: list[str] | None = None) -> dict[str, int]:
    """How many characters the text has."""
    return {"characters": len(text), "notes": len(notes or [])}


if __name__ == "__main__":
    server.run("stdio")

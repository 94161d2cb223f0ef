"""Streamable HTTP, both eras: legacy with wire session, GET stream and resumption; modern plain POST."""

from .transport import StreamableHttpTransport

__all__ = ["StreamableHttpTransport"]

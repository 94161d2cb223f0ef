"""Streamable HTTP for both eras. Legacy: wire session, GET stream and resumption. Modern: plain POST."""

from .transport import StreamableHttpTransport

__all__ = ["StreamableHttpTransport"]

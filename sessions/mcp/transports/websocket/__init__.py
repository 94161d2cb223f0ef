"""WebSocket: one JSON-RPC message in each text frame, subprotocol `mcp`.

NOT STANDARD: no revision of MCP defines this transport. It is the convention of the official SDKs' first generation,
and pages say so. Messages follow the stdio binding: one duplex stream, cancellation by notification.
"""

from .transport import WebSocketTransport

__all__ = ["WebSocketTransport"]

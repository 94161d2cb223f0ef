"""stdio servers: a child process that speaks one JSON-RPC message a line."""

from .isolation import Isolation, isolation, prepare_loop
from .transport import StdioTransport

__all__ = ["Isolation", "StdioTransport", "isolation", "prepare_loop"]

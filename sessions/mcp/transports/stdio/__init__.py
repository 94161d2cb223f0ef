"""stdio servers: a child process that exchanges one JSON-RPC message per line."""

from .isolation import Isolation, isolation, prepare_loop
from .transport import StdioTransport

__all__ = ["Isolation", "StdioTransport", "isolation", "prepare_loop"]

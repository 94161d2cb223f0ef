"""An MCP client for one server: joins the protocol machine to a transport in one event loop.

The machine (sessions/protocol) decides, the transport moves bytes; here is what waits: requests in flight with
their deadlines, the attempts of a call, the watch over a silent peer.
"""

from .client import BeforeSend, Client
from .pump import OnProgress

__all__ = ["BeforeSend", "Client", "OnProgress"]
